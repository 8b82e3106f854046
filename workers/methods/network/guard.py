"""The step guard: shorten a step until the retained loss stays within a budget.

A fixed η is not safe. On a CNN without normalisation layers (CIFAR-10 subset) PUF's η_u = 1
forgot well, and the paper's η_u = 2 cost 16 points of test accuracy after a round of recovery
and 8 after three. Here a step is tried on retained rows and shortened until their mean loss
has risen by no more than the budget. That is a search along one direction, in the order η,
0.7η, 0.49η, …: the first step within the budget is taken, and without one the method refuses:
there is no silent zero step.

A budget on retained rows limits what a step costs, not what it forgets, and the right one
differed tenfold between trainings. A guard may also evaluate the rows to forget: a model that
never saw them has about the loss on them that this model has on held-out rows, so the step
ends at a given multiple of that loss.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isfinite

import torch

from workers.errors import RefusedError
from workers.methods.network.validation import Validation
from workers.training.fedavg.base import Work
from workers.training.fedavg.errors import DivergedError
from workers.training.networks.weights import Weights, is_finite, moved

Candidate = Callable[[float], Weights]  # η -> the model after a step of η; 0: before it


class NoSafeStepError(RefusedError):
    """Every step that was tried costs the retained clients more than the budget allows."""


@dataclass(frozen=True, slots=True)
class StepGuard:
    """rise: the most nats by which a step may raise the retained validation loss.

    forget: the most that the loss on the rows to forget may reach, as a multiple of the
    original model's retained validation loss, None: not measured. Choose more than 1, because
    recovery lowers it again. forget_rows: about how many of them are evaluated, the same in
    all trials, because each trial costs a forward pass. Each trial is shrink times the last.
    At most `trials` steps are tried; the last of 20 is η/880. Raises RefusedError for a value
    out of range.
    """

    rise: float = 1.0
    shrink: float = 0.7
    trials: int = 20
    forget: float | None = None
    forget_rows: int = 100

    def __post_init__(self) -> None:
        if not (isfinite(self.rise) and self.rise >= 0):
            raise RefusedError("rise: must be a number of nats, 0 or more")
        if not 0 < self.shrink < 1:
            raise RefusedError("shrink: must lie between 0 and 1, try 0.7")
        if type(self.trials) is not int or not 1 <= self.trials <= 64:
            raise RefusedError("trials: must be an integer from 1 to 64")
        if self.forget is not None and not (isfinite(self.forget) and self.forget > 0):
            raise RefusedError("forget: must be a positive number, or none")
        if type(self.forget_rows) is not int or self.forget_rows < 1:
            raise RefusedError("forget_rows: must be an integer, 1 or more")


@dataclass(frozen=True, slots=True)
class Ceiling:
    """judge: measures the rows to forget. loss: in nats, where they count as forgotten."""

    judge: Validation
    loss: float


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial step: η and the retained validation loss after it (inf: none).

    forgotten: the loss on the rows to forget, None if not measured; if it is too high the
    retained rows are not evaluated.
    """

    step: float
    loss: float
    forgotten: float | None = None

    def __str__(self) -> str:
        """Return η and the losses."""
        said = f"{self.step:.6g}:{self.loss:.6g}"
        return said if self.forgotten is None else f"{said}/{self.forgotten:.6g}"


@dataclass(frozen=True, slots=True, eq=False)
class Stepped:
    """The model after a step, the η used, and the trials and work of the search.

    before is the loss at η = 0, None if not measured. The last trial is the one taken;
    without trials η is 0, because the rows were forgotten before the step. known is their
    loss before the step, None if not measured.
    """

    weights: Weights
    step: float
    asked: float
    before: float | None
    trials: tuple[Trial, ...]
    work: Work
    known: float | None = None

    @property
    def evaluations(self) -> int:
        """How many models were judged."""
        return len(self.trials) + (self.before is not None)

    def notes(self) -> dict[str, str]:
        """Return the notes for a certificate."""
        found = {"step.asked": f"{self.asked:.6g}", "step.used": f"{self.step:.6g}"}
        found["step.guard"] = "fixed" if self.before is None else "retained-validation-loss"
        if self.before is not None:
            after = self.trials[-1].loss if self.trials else self.before
            found["step.loss-before"] = f"{self.before:.6g}"
            found["step.loss-after"] = f"{after:.6g}"
            found["step.evaluations"] = str(self.evaluations)
            found["step.tried"] = " ".join(map(str, self.trials))
        if self.known is not None:
            found["step.guard"] += ", forget-loss"
            found["step.forget-before"] = f"{self.known:.6g}"
            reached = self.trials[-1].forgotten if self.trials else self.known
            found["step.forget-after"] = f"{reached:.6g}"
        return found


def along(weights: Weights, direction: Mapping[str, torch.Tensor]) -> Candidate:
    """Return η -> weights + η · direction, rounded once to float32."""
    return lambda step: moved(weights, direction, step)


def guarded_step(
    candidate: Candidate,
    asked: float,
    *,
    judge: Validation,
    guard: StepGuard,
    ceiling: Ceiling | None = None,
) -> Stepped:
    """Return the largest of asked, asked · shrink, … that stays within budget and ceiling.

    Costs one evaluation before the step and one for each trial, and with a ceiling as many on
    the rows to forget; a trial whose weights are not finite costs none. If the rows to forget
    reach the ceiling before any step, η is 0. Raises NoSafeStepError if none of the trials is
    within the budget, DivergedError if the model before the step has no finite loss on the
    retained rows or go.
    """
    _check_step(asked)
    start = candidate(0.0)
    first = judge(start)
    if not isfinite(first.loss):
        raise DivergedError("the model has no finite loss on the validation rows: retrain it")
    work, trials, step, known = first.work, [], asked, None
    if ceiling is not None:
        there = ceiling.judge(start)
        work, known = work + there.work, there.loss
        if not isfinite(known):
            raise DivergedError(
                "the model has no finite loss on the rows to forget: retrain it"
            )
        if known >= ceiling.loss:
            return Stepped(start, 0.0, asked, first.loss, (), work, known)
    for _ in range(guard.trials):
        weights = candidate(step)
        loss, forgotten, fits = inf, None, _finite(weights)
        if fits and ceiling is not None:
            there = ceiling.judge(weights)
            work, forgotten = work + there.work, there.loss
            fits = forgotten <= ceiling.loss
        if fits:
            judged = judge(weights)
            work, loss = work + judged.work, judged.loss
        trials.append(Trial(step, loss, forgotten))
        if loss <= first.loss + guard.rise:
            return Stepped(weights, step, asked, first.loss, tuple(trials), work, known)
        step *= guard.shrink
    raise NoSafeStepError(
        f"no step from {asked:.3g} down to {trials[-1].step:.3g} keeps the retained loss "
        f"within {guard.rise:.3g} of {first.loss:.3g}: allow more trials or a larger rise, or "
        "use retrain"
    )


def fixed_step(candidate: Candidate, asked: float) -> Stepped:
    """Return the step of exactly `asked`. Raises DivergedError if it is not finite."""
    _check_step(asked)
    weights = candidate(asked)
    if not _finite(weights):
        raise DivergedError("the step left no finite weights: ask for a smaller or guarded one")
    return Stepped(weights, asked, asked, None, (), Work())


def take_step(
    candidate: Candidate,
    asked: float,
    *,
    judge: Validation | None,
    guard: StepGuard | None,
    ceiling: Ceiling | None = None,
) -> Stepped:
    """Return a guarded step, or without a guard the fixed one.

    Raises as these two, and RefusedError for a guard without the rows it needs.
    """
    if guard is None:
        return fixed_step(candidate, asked)
    if judge is None:
        raise RefusedError(
            "a guarded step needs retained validation rows: give some, or set the guard to none"
        )
    if guard.forget is not None and ceiling is None:
        raise RefusedError(
            "this method does not evaluate the loss on the rows to forget: leave `forget` out"
        )
    return guarded_step(candidate, asked, judge=judge, guard=guard, ceiling=ceiling)


def _check_step(step: float) -> None:
    if not (isfinite(step) and step > 0):
        raise RefusedError("step: must be a positive number")


def _finite(weights: Weights) -> bool:
    return all(is_finite(part) for part in weights.values())
