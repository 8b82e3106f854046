"""The step is the largest trial within the budget, and a collapse is prevented."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from tests.workers.methods.network.small import TRAINED, VALIDATION, Changed, equal, scaled
from tests.workers.training.fedavg.small import CLIENTS, LOCAL, NETWORK, ROWS
from workers.errors import RefusedError
from workers.methods.network.guard import (
    Ceiling,
    NoSafeStepError,
    StepGuard,
    along,
    fixed_step,
    guarded_step,
    take_step,
)
from workers.methods.network.validation import ValidationLoss, by_clients, held_out
from workers.training.fedavg.base import ClientData, Fault, Work
from workers.training.fedavg.errors import DivergedError, RoundFailedError
from workers.training.fedavg.evaluate import evaluate
from workers.training.fedavg.in_process import InProcess
from workers.training.networks.weights import Weights


def line(step: float) -> Weights:
    """A model of one weight: the step itself."""
    return {"w": torch.tensor([step], dtype=torch.float32)}


class Parabola:
    """The loss 1 + w², and a record of its evaluations."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def __call__(self, weights: Weights) -> ValidationLoss:
        self.asked.append(float(weights["w"]))
        return ValidationLoss(1 + self.asked[-1] ** 2, Work(flops=10))


def test_the_largest_halving_within_the_budget_is_taken() -> None:
    judge = Parabola()
    stepped = guarded_step(line, 10.0, judge=judge, guard=StepGuard(rise=2.0, shrink=0.5))
    # Independently: the largest 10/2^k with (10/2^k)^2 <= 2.
    expected = next(10 / 2**k for k in range(20) if (10 / 2**k) ** 2 <= 2)
    assert stepped.step == expected == 1.25
    assert judge.asked == [0, 10, 5, 2.5, 1.25]
    assert float(stepped.weights["w"]) == 1.25
    assert (stepped.before, stepped.evaluations, stepped.work.flops) == (1.0, 5, 50)
    assert stepped.notes() == {
        "step.asked": "10",
        "step.used": "1.25",
        "step.guard": "retained-validation-loss",
        "step.loss-before": "1",
        "step.loss-after": "2.5625",
        "step.evaluations": "5",
        "step.tried": "10:101 5:26 2.5:7.25 1.25:2.5625",
    }


def test_a_step_within_the_budget_is_not_shortened() -> None:
    stepped = guarded_step(line, 1.0, judge=Parabola(), guard=StepGuard(rise=1.0))
    assert (stepped.step, stepped.evaluations) == (1.0, 2)


def test_the_trials_are_a_budget_too() -> None:
    judge = Parabola()
    with pytest.raises(NoSafeStepError, match=r"from 10 down to 2\.5 .* retrain"):
        guarded_step(line, 10.0, judge=judge, guard=StepGuard(rise=2.0, shrink=0.5, trials=3))
    assert len(judge.asked) == 4


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_over_any_budget(bad: float) -> None:
    def judge(weights: Weights) -> ValidationLoss:
        step = float(weights["w"])
        return ValidationLoss(bad if step > 3 else 1.0, Work())

    stepped = guarded_step(line, 8.0, judge=judge, guard=StepGuard(rise=1e9, shrink=0.5))
    assert stepped.step == 2.0
    with pytest.raises(DivergedError, match="retrain"):
        guarded_step(line, 8.0, judge=lambda _: ValidationLoss(bad, Work()), guard=StepGuard())


def test_weights_that_overflow_are_not_even_evaluated() -> None:
    judge = Parabola()
    stepped = guarded_step(
        lambda step: line(step * 1e38), 8.0, judge=judge, guard=StepGuard(rise=1e99, shrink=0.5)
    )
    assert stepped.step == 2.0
    assert len(judge.asked) == 2
    assert stepped.trials[0].loss == math.inf
    with pytest.raises(DivergedError, match="guarded"):
        fixed_step(lambda step: line(step * 1e38), 8.0)


def test_without_a_guard_the_step_is_the_one_asked_for() -> None:
    stepped = take_step(line, 10.0, judge=Parabola(), guard=None)
    assert (stepped.step, stepped.evaluations) == (10.0, 0)
    assert stepped.notes()["step.guard"] == "fixed"
    with pytest.raises(RefusedError, match="validation"):
        take_step(line, 10.0, judge=None, guard=StepGuard())


def judged_as(loss: float, weights: Weights) -> ValidationLoss:
    return ValidationLoss(loss, Work())


class Square:
    """The loss 0.1 + w² on the rows to forget."""

    def __call__(self, weights: Weights) -> ValidationLoss:
        return ValidationLoss(0.1 + float(weights["w"]) ** 2, Work(flops=3))


def test_a_ceiling_ends_the_step_where_the_rows_that_go_are_forgotten() -> None:
    judge, guard = Parabola(), StepGuard(rise=50.0, shrink=0.5, forget=2.0)
    ceiling = Ceiling(Square(), 2.0)
    stepped = guarded_step(line, 10.0, judge=judge, guard=guard, ceiling=ceiling)
    assert stepped.step == 1.25  # 0.1 + 2.5² > 2 >= 0.1 + 1.25²
    assert judge.asked == [0, 1.25]  # retained rows never see a step above the ceiling
    assert stepped.work.flops == 2 * 10 + 5 * 3
    notes = stepped.notes()
    assert notes["step.guard"] == "retained-validation-loss, forget-loss"
    assert (notes["step.forget-before"], notes["step.forget-after"]) == ("0.1", "1.6625")
    assert notes["step.tried"].split()[0] == "10:inf/100.1"
    tight = replace(guard, rise=0.5)  # both must hold
    stepped = guarded_step(line, 10.0, judge=Parabola(), guard=tight, ceiling=ceiling)
    assert stepped.step == 0.625
    with pytest.raises(RefusedError, match="leave `forget` out"):
        take_step(line, 1.0, judge=Parabola(), guard=guard)


@pytest.mark.parametrize("loss", [2.0, 7.0])
def test_what_is_forgotten_before_the_step_needs_none(loss: float) -> None:
    ceiling = Ceiling(lambda _: ValidationLoss(loss, Work()), 2.0)
    guard = StepGuard(forget=2.0)
    stepped = guarded_step(line, 10.0, judge=Parabola(), guard=guard, ceiling=ceiling)
    assert (stepped.step, stepped.trials, float(stepped.weights["w"])) == (0.0, (), 0.0)
    assert stepped.notes()["step.used"] == "0"
    for bad in (math.nan, math.inf):  # otherwise a target could suppress the step
        none = Ceiling(partial(judged_as, bad), 2.0)
        with pytest.raises(DivergedError, match="rows to forget"):
            guarded_step(line, 10.0, judge=Parabola(), guard=guard, ceiling=none)
    assert stepped.notes()["step.loss-after"] == "1"


def test_along_is_a_line_through_the_weights() -> None:
    direction = {"w": torch.tensor([2.0])}
    at = along({"w": torch.tensor([1.0])}, direction)
    assert [float(at(step)["w"]) for step in (0, 0.5, 3)] == [1, 2, 7]


@pytest.mark.parametrize(
    "fields",
    [{"rise": -1}, {"rise": math.nan}, {"shrink": 1}, {"shrink": 0}, {"trials": 0}, {"trials": 1.5},
     {"forget": 0}, {"forget": math.inf}],
)  # fmt: skip
def test_odd_guards_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match=next(iter(fields))):
        StepGuard(**fields)


@pytest.mark.parametrize("step", [0.0, -1.0, math.nan, math.inf])
def test_odd_steps_are_refused(step: float) -> None:
    with pytest.raises(RefusedError, match="positive"):
        take_step(line, step, judge=None, guard=None)


def test_held_out_rows_are_judged_as_they_are_evaluated() -> None:
    judged = held_out(NETWORK, VALIDATION)(TRAINED)
    assert judged.loss == evaluate(NETWORK, TRAINED, VALIDATION).loss
    assert judged.work.flops == 30 * 2 * 4 * 3
    wrong = ClientData(torch.zeros(3, 9), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(RefusedError, match="shape"):
        held_out(NETWORK, wrong)


def test_clients_judge_as_their_rows_together_would() -> None:
    everyone = ClientData(
        torch.cat([data.inputs for data in CLIENTS.values()]),
        torch.cat([data.targets for data in CLIENTS.values()]),
    )
    judge = by_clients(NETWORK, InProcess(CLIENTS), ROWS, LOCAL)
    judged = judge(TRAINED)
    assert judged.loss == pytest.approx(evaluate(NETWORK, TRAINED, everyone).loss, rel=1e-6)
    # A forward pass and no tensor: 24 rows, a multiply and an add, 4 features, 3 classes.
    assert (judged.work.flops, judged.work.steps) == (24 * 2 * 4 * 3, 0)
    assert 0 < judged.work.bytes_up < 3 * 600
    with pytest.raises(RefusedError, match="stays"):
        by_clients(NETWORK, InProcess({}), {}, LOCAL)


def test_a_client_that_does_not_answer_judges_nothing() -> None:
    """Two candidates judged by different rows would not be comparable."""
    gone = {name: data for name, data in CLIENTS.items() if name != "bert"}
    with pytest.raises(RoundFailedError, match="held-out") as caught:
        by_clients(NETWORK, InProcess(gone), ROWS, LOCAL)(TRAINED)
    assert "bert" not in str(caught.value)


def test_a_client_for_whom_the_loss_is_infinite_has_judged() -> None:
    spoiled = Changed(InProcess(CLIENTS), lambda update: replace(update, loss=math.inf))
    assert by_clients(NETWORK, spoiled, ROWS, LOCAL)(TRAINED).loss == math.inf
    failing = Changed(InProcess(CLIENTS), lambda update: Fault(update.client, "client-error"))
    with pytest.raises(RoundFailedError):
        by_clients(NETWORK, failing, ROWS, LOCAL)(TRAINED)
    fine = Changed(InProcess(CLIENTS), scaled(1.0))
    assert equal(TRAINED, TRAINED)
    assert math.isfinite(by_clients(NETWORK, fine, ROWS, LOCAL)(TRAINED).loss)
