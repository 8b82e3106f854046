"""SISA against the oracle: a sharded training without the target. Other shards keep their bits."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.baselines.sisa import (
    Shard,
    ShardedCase,
    Sisa,
    SisaModel,
    ensemble_probabilities,
)
from tests.workers.methods.network.small import equal
from tests.workers.training.fedavg.small import CONFIG, NETWORK, client_data
from workers.errors import RefusedError
from workers.methods.network.base import Hooks, UnlearningRequest, UnmetNeedError
from workers.methods.network.local_case import divide, local_case
from workers.training.fedavg.base import Clients
from workers.training.fedavg.errors import CheckpointError
from workers.training.fedavg.evaluate import logits_of
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes

MANY: Clients = {f"c{i}": client_data(4 + i, 40 + i) for i in range(14)}
METHOD = Sisa(shards=3, slices=2)
PLACES = {name: METHOD.place(name, CONFIG.seed) for name in MANY}


def trained(clients: Clients | None = None, method: Sisa = METHOD) -> SisaModel:
    if clients is None:
        return whole(method)
    return method.train(NETWORK, sizes(clients), CONFIG, InProcess(clients))


@cache
def whole(method: Sisa) -> SisaModel:
    return trained(MANY, method)


def case_of(request: UnlearningRequest, **changes: Any) -> ShardedCase:
    sharded = changes.pop("sharded", None) or trained()
    plain = local_case(NETWORK, sharded.weights, request, CONFIG, MANY, **changes)
    fields = {name: getattr(plain, name) for name in plain.__dataclass_fields__}
    return ShardedCase(**fields, sharded=sharded)


def in_slice(wanted: int) -> str:
    """A client of a slice that somebody else is left in."""
    places = list(PLACES.values())
    return next(n for n, at in PLACES.items() if at[1] == wanted and places.count(at) > 1)


LAST, FIRST = in_slice(1), in_slice(0)
# The lower slice's client comes first by name: whoever looks at the last one only is wrong.
PAIR = next(
    (one, two)
    for one, (shard, at) in sorted(PLACES.items())
    for two, other in sorted(PLACES.items())
    if at == 0 and other == (shard, 1) and one < two
)
REQUESTS = {
    "a client of a last slice": UnlearningRequest(frozenset({LAST})),
    "a client of a first slice": UnlearningRequest(frozenset({FIRST})),
    "rows": UnlearningRequest(rows={LAST: (0, 2)}),
    "several": UnlearningRequest(frozenset({FIRST}), {LAST: (1,)}),
    "two slices of one shard": UnlearningRequest(frozenset(PAIR)),
    "a whole shard": UnlearningRequest(
        frozenset(name for name, (shard, _) in PLACES.items() if shard == PLACES[FIRST][0])
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_it_is_bit_for_bit_the_sharded_training_without(name: str) -> None:
    found = METHOD.run(case_of(REQUESTS[name]))
    oracle = trained(divide(MANY, REQUESTS[name])[0])
    assert found.sharded.shards.keys() == oracle.shards.keys()
    for number, shard in oracle.shards.items():
        for one, other in zip(found.sharded.shards[number].ladder, shard.ladder, strict=True):
            assert equal(one, other)
    assert equal(found.weights, oracle.weights)
    assert found.claim == "exact-retrained"
    # And it did change: something was there to forget.
    assert not equal(found.weights, trained().weights)


class JudgementInput:
    """An engine that notes whom it was asked for."""

    def __init__(self, clients: Clients) -> None:
        self.inner, self.names = InProcess(clients), set[str]()

    def run(self, tasks: Any, *, timeout: float) -> Any:
        self.names |= {task.client for task in tasks}
        return self.inner.run(tasks, timeout=timeout)


@pytest.mark.parametrize("target", [LAST, FIRST])
def test_only_the_touched_shard_trains_from_the_touched_slice_on(target: str) -> None:
    given = case_of(UnlearningRequest(frozenset({target})))
    asked = JudgementInput(divide(MANY, given.request)[0])
    found = METHOD.run(replace(given, retained=replace(given.retained, engine=asked)))
    shard, slice_ = PLACES[target]
    assert given.sharded is not None
    assert {PLACES[name][0] for name in asked.names} == {shard}
    assert found.work.rounds == CONFIG.rounds * (2 - slice_) // 2
    assert found.notes["sisa.rounds-repeated"] == str(found.work.rounds)
    for number, old in given.sharded.shards.items():
        if number != shard:
            assert found.sharded.shards[number] is old
    kept = found.sharded.shards[shard].ladder[: slice_ + 1]
    for one, other in zip(kept, given.sharded.shards[shard].ladder, strict=False):
        assert one is other


def test_a_second_request_is_exact_too() -> None:
    first = UnlearningRequest(frozenset({LAST}))
    stay = divide(MANY, first)[0]
    sharded = METHOD.run(case_of(first)).sharded
    again = UnlearningRequest(frozenset({FIRST}))
    plain = local_case(NETWORK, sharded.weights, again, CONFIG, stay)
    fields = {name: getattr(plain, name) for name in plain.__dataclass_fields__}
    found = METHOD.run(ShardedCase(**fields, sharded=sharded))
    assert equal(found.weights, trained(divide(stay, again)[0]).weights)


def test_one_shard_of_one_slice_is_a_retraining_of_fedavg() -> None:
    lone = Sisa(1, 1)
    sharded = trained(method=lone)
    assert len(sharded.members) == 1
    assert sharded.work.rounds == CONFIG.rounds
    assert sharded.bytes == 2 * 15 * 4


def test_the_ensemble_is_the_mean_of_probabilities_and_the_weights_of_logits() -> None:
    sharded = trained()
    inputs = MANY["c0"].inputs
    logits = [logits_of(NETWORK, member, inputs).double().numpy() for member in sharded.members]
    parts = [np.exp(z) / np.exp(z).sum(1, keepdims=True) for z in logits]
    found = ensemble_probabilities(NETWORK, sharded.members, inputs)
    np.testing.assert_allclose(found.numpy(), np.mean(parts, axis=0), atol=1e-12)
    mean = logits_of(NETWORK, sharded.weights, inputs).numpy()
    np.testing.assert_allclose(mean, np.mean(logits, axis=0), atol=1e-5)


def test_state_and_work_are_counted() -> None:
    sharded = trained()
    assert sharded.bytes == len(sharded.shards) * 3 * 15 * 4
    found = METHOD.run(case_of(REQUESTS["rows"]))
    assert found.notes["state.bytes"] == str(sharded.bytes)
    assert found.notes["sisa.shards-touched"] == "1"


@pytest.mark.parametrize("shards", [1, 4])
def test_places_depend_on_the_name_alone_and_spread(shards: int) -> None:
    method = Sisa(shards, 3)
    counts = np.zeros((shards, 3))
    for i in range(3000):
        counts[method.place(f"name {i}", 5)] += 1
    share = 3000 / shards / 3
    assert np.abs(counts - share).max() < 5 * np.sqrt(share)


def other_start() -> SisaModel:
    sharded = trained()
    number, shard = next(iter(sharded.shards.items()))
    warm = Shard((shard.weights, *shard.ladder[1:]))
    return replace(sharded, shards={**sharded.shards, number: warm})


ONE = REQUESTS["rows"]
BAD: dict[str, Callable[[], object]] = {
    "not sharded": lambda: METHOD.run(
        local_case(NETWORK, trained().weights, ONE, CONFIG, MANY)
    ),
    "no shards given": lambda: METHOD.run(replace(case_of(ONE), sharded=None)),
    "other slices": lambda: Sisa(3, 3).run(case_of(ONE)),
    "other shards": lambda: Sisa(7, 2).run(case_of(ONE)),
    "a start that had seen rows": lambda: METHOD.run(case_of(ONE, sharded=other_start())),
    "no shard": lambda: Sisa(shards=0),
    "no slice": lambda: Sisa(slices=0),
}


@pytest.mark.parametrize("name", BAD)
def test_it_refuses(name: str) -> None:
    with pytest.raises(RefusedError):
        BAD[name]()


def test_refusals_name_the_remedy() -> None:
    with pytest.raises(UnmetNeedError, match="train it with sisa"):
        BAD["not sharded"]()
    with pytest.raises(CheckpointError):
        METHOD.run(case_of(ONE), Hooks(resume=b"what"))
    assert torch.is_tensor(trained().weights["head.bias"])
