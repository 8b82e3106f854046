"""Clients that vanish, break or lie between the products; the model is unchanged."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.workers.methods.network.hf_kcu.small import (
    EXACT,
    POISONED,
    Change,
    case_of,
    delta_of,
    derivatives,
    spoil,
    vector_of,
    without,
)
from workers.errors import RefusedError
from workers.methods.network.base import Side, TargetError
from workers.methods.network.hf_kcu.direction import CurvatureError
from workers.methods.network.hf_kcu.method import HfKcu
from workers.methods.network.hf_kcu.products import NobodyAnsweredError
from workers.training.fedavg.base import Answers, ClientUpdate, Fault, RoundTask
from workers.training.fedavg.errors import RoundFailedError

Tamper = Callable[[ClientUpdate], ClientUpdate | Fault | None]


def filled(value: float) -> Tamper:
    return lambda update: replace(
        update, delta={n: torch.full_like(p, value) for n, p in update.delta.items()}
    )


def reshaped(update: ClientUpdate) -> ClientUpdate:
    return replace(update, delta={n: p.flatten() for n, p in update.delta.items()})


def by(clients: str, tamper: Tamper, after: int = 0) -> Change:
    """Change the answers of clients (by initial) from question `after` + 1 on."""

    def change(task: RoundTask, update: ClientUpdate) -> ClientUpdate | Fault | None:
        hit = task.client[0] in clients and task.round > after
        return tamper(update) if hit else update

    return change


FAULTS: list[tuple[str, Tamper, str]] = [
    ("nan", filled(float("nan")), "not-finite"),
    ("infinite", filled(float("inf")), "not-finite"),
    ("enormous", filled(1e20), "norm"),
    ("other shapes", reshaped, "shape"),
    ("no answer", lambda update: None, "no-answer"),
    ("an old answer", lambda update: replace(update, round=9_999), "mismatch"),
    ("more rows", lambda update: replace(update, samples=10**6), "mismatch"),
    ("an error", lambda update: Fault(update.client, "client-error"), "client-error"),
]


# Each fault once, and two of them at each time; `make test-full` has all of both.
TIMED = [
    pytest.param(
        *fault,
        after,
        id=f"{after}-{name}",
        marks=() if after == 1 or name in ("nan", "no answer") else pytest.mark.full,
    )
    for name, *fault in FAULTS
    for after in (0, 1, 5)
]


@pytest.mark.parametrize(("tamper", "reason", "after"), TIMED)
def test_a_client_that_breaks_is_named_and_left_out(
    tamper: Tamper, reason: str, after: int
) -> None:
    case, engine = spoil(case_of("ben"), by("e", tamper, after))
    found = replace(EXACT, max_norm=1e6).direction(case)
    assert [(fault.client, fault.reason) for fault in found.faults] == [("eve", reason)]
    assert found.notes()["hf-kcu.dropped"] == f"1 ({reason})"
    assert found.panel == 3
    assert found.restarts == (after > 0)
    assert (engine.tasks[-1].client, "eve") == ("dot", "eve")
    # The matrix is that of the three others, from the first product to the last. Without
    # eve's gradient the model does not look converged: the form is newton then.
    theta = vector_of(case)
    hessian, _ = derivatives(without(POISONED, "ben", "eve"), theta)
    who = ("ben", "eve") if after == 0 else ("ben",)
    _, stays = derivatives(without(POISONED, *who), theta)
    wanted = -np.linalg.solve(hessian, stays)
    if found.form == "influence":
        _, leaves = derivatives({"ben": POISONED["ben"]}, theta)
        wanted = 60 / 190 * np.linalg.solve(hessian, leaves)
    got = np.asarray(found.delta)
    assert np.linalg.norm(got - wanted) < 1e-3 * np.linalg.norm(wanted)


GONE: list[tuple[str, Change]] = [
    ("all offline", by("acde", lambda update: None)),
    ("all NaN", by("acde", filled(float("nan")))),
    ("all offline after the gradients", by("acde", lambda update: None, after=1)),
    ("most offline", by("cde", lambda update: None)),
    ("most offline after some products", by("cde", lambda update: None, after=4)),
]


@pytest.mark.parametrize("change", [g[1] for g in GONE], ids=[g[0] for g in GONE])
def test_too_few_answers_are_a_refusal(change: Change) -> None:
    case, _ = spoil(case_of("ben"), change)
    before = {name: part.clone() for name, part in case.weights.items()}
    with pytest.raises(NobodyAnsweredError, match="ask again"):
        HfKcu().run(case)
    assert all(bool((before[name] == case.weights[name]).all()) for name in before)


def test_a_smaller_share_may_be_allowed() -> None:
    case, _ = spoil(case_of("ben"), by("cde", lambda update: None))
    assert replace(EXACT, least_share=0.1).direction(case).panel == 1


def test_an_engine_that_reaches_nobody_is_a_refusal() -> None:
    class Unplugged:
        def run(self, tasks: list[RoundTask], *, timeout: float) -> Answers:
            raise RoundFailedError("no broker")

    case = case_of("ben")
    with pytest.raises(NobodyAnsweredError):
        HfKcu().run(replace(case, retained=Side(Unplugged(), case.retained.rows)))  # type: ignore[arg-type]
    assert case.targets is not None
    offline = replace(case, targets=Side(Unplugged(), case.targets.rows))  # type: ignore[arg-type]
    assert EXACT.direction(offline).form == "newton"


def test_a_target_that_answers_nonsense_is_done_without() -> None:
    case = case_of("ben")
    assert case.targets is not None
    rows = {"ben": 61}  # it answers for 60
    lying = replace(case, targets=Side(case.targets.engine, rows))
    found = EXACT.direction(lying)
    assert (found.form, found.why) == ("newton", "a target did not answer usably")
    gap = np.linalg.norm(np.asarray(found.delta) - delta_of(EXACT, case))
    assert gap < 1e-3 * np.linalg.norm(delta_of(EXACT, case))
    for method in (replace(EXACT, form="influence"), HfKcu(variant="as-printed", guard=None)):
        with pytest.raises(TargetError, match="retrain"):
            method.run(lying)


def test_answers_at_random_are_refused() -> None:
    generator = torch.Generator().manual_seed(0)

    def random(update: ClientUpdate) -> ClientUpdate:
        noise = {n: torch.randn(p.shape, generator=generator) for n, p in update.delta.items()}
        return replace(update, delta=noise)

    case, _ = spoil(case_of("ben"), by("e", random, after=1))
    with pytest.raises(RefusedError, match=r"one matrix|positive definite"):
        replace(EXACT, damping=3.0).run(case)


def test_an_indefinite_matrix_is_refused_with_a_remedy() -> None:
    def negated(update: ClientUpdate) -> ClientUpdate:
        return replace(update, delta={n: -p for n, p in update.delta.items()})

    case, _ = spoil(case_of("ben"), by("acde", negated, after=1))
    local = replace(case.config.local, weight_decay=0.0)
    case = replace(case, config=replace(case.config, local=local))
    before = {name: part.clone() for name, part in case.weights.items()}
    with pytest.raises(CurvatureError, match="damping above"):
        EXACT.run(case)
    assert all(bool((before[name] == case.weights[name]).all()) for name in before)
    assert replace(EXACT, damping=5.0).direction(case).report.outcome == "converged"
