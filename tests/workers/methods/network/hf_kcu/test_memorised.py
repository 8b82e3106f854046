"""A model that memorised the rows to forget: small gradients, and still forgotten."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.workers.methods.network.hf_kcu.small import (
    CLIENTS,
    CONFIG,
    EXACT,
    NETWORK,
    case_of,
    delta_of,
    derivatives,
    refit,
    spoil,
    vector_of,
    without,
)
from workers.methods.network.base import UnlearningCase
from workers.methods.network.hf_kcu.method import HfKcu
from workers.training.fedavg.base import ClientUpdate, RoundTask
from workers.training.fedavg.client.curvature import some_rows
from workers.training.fedavg.evaluate import evaluate
from workers.training.networks.weights import Weights

DEFAULT = HfKcu()


def memorised(**more: Any) -> UnlearningCase:
    """Weights four times those of the optimum, without decay: every row is fitted too well."""
    case = case_of("ada", clients=CLIENTS, theta=4 * refit(CLIENTS), **more)
    return replace(case, config=replace(CONFIG, local=replace(CONFIG.local, weight_decay=0.0)))


def loss(weights: Weights) -> float:
    return evaluate(NETWORK, weights, CLIENTS["ada"]).loss


def test_by_default_it_forgets_where_newton_trains_on() -> None:
    case = memorised()
    before = loss(case.weights)
    assert before < 0.05
    found = DEFAULT.run(case)
    assert found.notes["hf-kcu.form"] == "influence"
    assert float(found.notes["hf-kcu.drift"]) > 3  # what used to be the limit
    assert loss(found.weights) > 5 * before
    rise = float(found.notes["step.loss-after"]) - float(found.notes["step.loss-before"])
    assert 0 < rise <= 0.3
    newton = replace(DEFAULT, form="newton").run(case)
    assert loss(newton.weights) < 2 * before
    assert loss(newton.weights) < loss(found.weights) / 3


def test_the_search_begins_at_a_quarter_of_the_weights_whatever_the_length_of_the_step() -> (
    None
):
    case = memorised()
    size = float(np.linalg.norm(vector_of(case)))
    used = []
    for damping in (0.03, 30.0):
        method = replace(DEFAULT, damping=damping)
        found = method.direction(case)
        length = float(found.delta.norm())
        assert method.asked(case, found) == max(1.0, 0.25 * size / length)
        used.append(float(method.run(case).notes["step.used"]) * length / size)
    assert float(found.delta.norm()) < 0.001 * size  # of 30; a guard from 1 would do nothing
    assert min(used) > 0.02
    assert max(used) <= 0.2501


@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        (replace(DEFAULT, guard=None), 1.0),
        (replace(DEFAULT, form="newton"), 1.0),
        (replace(DEFAULT, step=0.5), 0.5),
        (replace(DEFAULT, step=0.5, guard=None), 0.5),
    ],
    ids=["no guard", "newton", "asked for", "asked for, no guard"],
)
def test_elsewhere_the_step_is_the_whole_or_the_one_asked_for(
    method: HfKcu, wanted: float
) -> None:
    case = memorised()
    assert method.asked(case, method.direction(case)) == wanted


def test_at_an_optimum_the_whole_step_is_the_refit_and_no_longer_one_is_tried() -> None:
    case = case_of("ada", clients=CLIENTS)
    found = DEFAULT.direction(case)
    assert found.drift is not None
    assert found.drift < 0.1
    assert float(found.delta.norm()) < 0.1 * float(np.linalg.norm(vector_of(case)))
    assert DEFAULT.asked(case, found) == 1.0


def test_all_products_of_one_solve_take_the_same_share_of_the_rows() -> None:
    """The step is that of the matrix of the drawn rows, formed whole in float64."""
    drawn: dict[str, list[int]] = {}

    def note(task: RoundTask, update: ClientUpdate) -> ClientUpdate:
        if task.operation == "gradient":
            assert task.share == 1.0
            return update
        rows = some_rows(update.samples, task.share, task.seed).tolist()
        assert drawn.setdefault(task.client, rows) == rows
        return update

    case, _ = spoil(case_of("ben"), note)
    found = replace(EXACT, curvature_rows=0.4).direction(case)
    stays = without(CLIENTS, "ben")
    assert {name: len(rows) for name, rows in drawn.items()} == {
        name: -(-2 * len(data) // 5) for name, data in stays.items()
    }
    theta = vector_of(case)
    total = sum(len(data) for data in stays.values())
    matrix = np.zeros((15, 15))
    for name, data in stays.items():
        part, _ = derivatives({name: data.only(torch.tensor(drawn[name]))}, theta)
        matrix += len(data) / total * part
    _, gradient = derivatives(stays, theta)
    wanted = -np.linalg.solve(matrix, gradient)
    got = np.asarray(found.delta)
    assert np.linalg.norm(got - wanted) < 1e-3 * np.linalg.norm(wanted)
    assert found.report.outcome == "converged"
    assert found.report.asymmetry < 1e-4
    everything = delta_of(EXACT, case_of("ben"))
    assert 0.005 < np.linalg.norm(got - everything) / np.linalg.norm(everything) < 0.5


def test_all_rows_are_the_default_and_a_share_is_noted_and_costs_less() -> None:
    case = case_of("ben")
    whole = replace(EXACT, iterations=5)
    np.testing.assert_array_equal(
        delta_of(replace(whole, curvature_rows=1.0), case), delta_of(whole, case)
    )
    full, part = whole.run(case), replace(whole, curvature_rows=0.25).run(case)
    assert full.notes["hf-kcu.curvature-rows"] == "1"
    assert part.notes["hf-kcu.curvature-rows"] == "0.25"
    assert part.work.flops < 0.5 * full.work.flops
