"""NoT negates the first kernel, exactly and nothing else."""

from dataclasses import replace

import torch

from tests.workers.methods.network.baselines.federated_case import cnn_case
from tests.workers.methods.network.small import SOME_ROWS, WHOLE, Silent, case, equal
from workers.methods.network.base import Side
from workers.methods.network.baselines.no_t import NoT
from workers.methods.network.natural import Natural
from workers.methods.network.recovery import Recovery


def test_it_negates_exactly_the_first_kernel() -> None:
    given = cnn_case()
    asks_nobody = replace(given, retained=Side(Silent(), given.retained.rows), targets=None)
    found = NoT(Recovery(rounds=0)).run(asks_nobody)
    for name, part in given.weights.items():
        wanted = -part if name == "features.0.weight" else part
        assert torch.equal(found.weights[name], wanted), name
    assert bool(given.weights["features.0.weight"].any())
    assert found.notes["not.negated"] == "features.0.weight"
    assert (found.work.flops, found.work.bytes_up, found.work.rounds) == (0, 0, 0)
    assert found.claim == "empirical-approximate"


def test_it_steps_alike_whoever_leaves() -> None:
    whole, rows = (
        NoT(Recovery(rounds=0)).run(case(request)).weights for request in (WHOLE, SOME_ROWS)
    )
    assert equal(whole, rows)


def test_recovery_goes_on_from_the_negated_model() -> None:
    negated = NoT(Recovery(rounds=0)).run(case())
    found = NoT(Recovery(rounds=2)).run(case())
    again = Natural(Recovery(rounds=2)).run(replace(case(), weights=negated.weights))
    assert equal(found.weights, again.weights)
    assert found.work == again.work
