"""Step and recover several times: short steps forget where one long step damages.

Recovery restores much of what a step removed: the damage, but also what was to be forgotten.
If the rows to forget are evaluated after each recovery, a further step removes the rest, and
each step is shorter than the last. A cycle of PUF-Special costs one pass of the target
clients and one recovery.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from workers.errors import RefusedError
from workers.methods.network.base import Hooks, TargetError, Tick, Unlearned, UnlearningCase
from workers.methods.network.guard import Ceiling, StepGuard
from workers.methods.network.recovery import (
    Progress,
    Recovery,
    Step,
    check_lasting,
    pin_of,
    step_and_recover,
)
from workers.methods.network.validation import Validation, ValidationLoss, by_clients
from workers.training.fedavg.base import Work
from workers.training.fedavg.errors import RoundFailedError
from workers.training.networks.weights import Weights

MOST = 64


@dataclass(frozen=True, slots=True)
class Cycles:
    """The number of steps, each with its recovery, and their guard.

    What a recovery restores of the rows to forget, the next step removes again, except after
    the last one. So only the last recovery settles. Raises RefusedError for a number out of
    range.
    """

    number: int
    guard: StepGuard | None
    recovery: Recovery

    def __post_init__(self) -> None:
        if type(self.number) is not int or not 1 <= self.number <= MOST:
            raise RefusedError(f"cycles: must be an integer from 1 to {MOST}")

    def after(self, step: int) -> Recovery:
        """Return the recovery after a step; steps count from 0.

        Lasting damage is not checked here but from the model before the first step.
        """
        if step == self.number - 1:
            return replace(self.recovery, lasting=None)
        return replace(self.recovery, settle=1.0, lasting=None)


Stepping = Callable[[UnlearningCase, Ceiling | None], Step]


def step_in_cycles(
    case: UnlearningCase,
    method: str,
    step: Stepping,
    cycles: Cycles,
    hooks: Hooks | None = None,
) -> Unlearned:
    """Return the model after all steps and recoveries. method spells id, version and options.

    Each cycle continues from the model and the training schedule where the last one ended.
    The ceiling, and the loss that damage is measured from, are those of the model before the
    first cycle; damage is measured after each cycle. Notes that differ between cycles are
    joined. Raises as `step_and_recover`, and TargetError if a target must tell its loss and
    does not answer.
    """
    hooks = hooks or Hooks()
    if cycles.recovery.lasting is not None and case.validation is None:
        raise RefusedError(
            "what may last is judged by retained validation rows and there are none: give "
            "some, or leave `lasting` out"
        )
    pin = pin_of(case, method)
    if hooks.resume is not None:
        whole = Progress.decode(hooks.resume, case.network, pin)
    else:
        whole = _begun(case, cycles)
    ceiling = _ceiling(case, cycles.guard, whole.goal)
    each = cycles.recovery.rounds
    while whole.rounds < cycles.number:
        done = whole.rounds
        rounds = case.config.rounds + done * each
        part = replace(case, weights=whole.weights, config=replace(case.config, rounds=rounds))
        found = step_and_recover(
            part,
            f"{method}, cycle {done}",
            partial(step, part, ceiling),
            cycles.after(done),
            _hooks(case, pin, whole, cycles, hooks),
        )
        work, left = _damage(case, cycles, found.weights, whole.goal)
        whole = Progress(
            found.weights,
            whole.work + found.work + work,
            _beside(whole.notes, {**found.notes, **left}),
            whole.goal,
            done + 1,
        )
    return Unlearned(whole.weights, whole.work, "empirical-approximate", whole.notes)


def _begun(case: UnlearningCase, cycles: Cycles) -> Progress:
    """Return the progress before the first cycle; goal is the loss to measure from."""
    notes = {"cycles": str(cycles.number)} if cycles.number > 1 else {}
    forgets = cycles.guard is not None and cycles.guard.forget is not None
    if case.validation is None or not (forgets or cycles.recovery.lasting is not None):
        return Progress(case.weights, Work(), notes)
    judged = case.validation(case.weights)
    return Progress(case.weights, judged.work, notes, judged.loss)


def _damage(
    case: UnlearningCase, cycles: Cycles, weights: Weights, before: float | None
) -> tuple[Work, Mapping[str, str]]:
    """Return the work of measuring the damage left, and its note. Raises LastingDamageError."""
    if cycles.recovery.lasting is None or case.validation is None or before is None:
        return Work(), {}
    judged = case.validation(weights)
    return judged.work, check_lasting(cycles.recovery.lasting, before, judged.loss)


def _ceiling(
    case: UnlearningCase, guard: StepGuard | None, before: float | None
) -> Ceiling | None:
    if before is None or guard is None or guard.forget is None or case.targets is None:
        return None
    side, config = case.targets, case.config
    share = min(1.0, guard.forget_rows / max(1, sum(side.rows.values())))
    ask = by_clients(
        case.network,
        side.engine,
        side.rows,
        config.local,
        timeout=config.timeout,
        share=share,
    )
    return Ceiling(_of_targets(ask), guard.forget * before)


def _of_targets(ask: Validation) -> Validation:
    def judge(weights: Weights) -> ValidationLoss:
        try:
            return ask(weights)
        except RoundFailedError:
            raise TargetError(
                "a target client did not tell its loss: leave `forget` out of the guard, or "
                "use retrain"
            ) from None

    return judge


def _hooks(
    case: UnlearningCase, pin: str, whole: Progress, cycles: Cycles, hooks: Hooks
) -> Hooks:
    """Return the hooks of one cycle: its progress within the whole."""
    earlier, every = whole.rounds * cycles.recovery.rounds, cycles.recovery.rounds

    def save(inner: bytes) -> None:
        assert hooks.save is not None
        hooks.save(replace(whole, training=inner).encode(case.network, pin))

    def tell(tick: Tick) -> None:
        assert hooks.tell is not None
        if tick.phase == "recovery":
            total = cycles.number * every
            tick = replace(tick, done=earlier + tick.done, total=total)
        else:
            tick = replace(tick, done=whole.rounds + tick.done, total=cycles.number)
        hooks.tell(tick)

    return Hooks(
        save=None if hooks.save is None else save,
        resume=whole.training or None,
        tell=None if hooks.tell is None else tell,
    )


def _beside(earlier: Mapping[str, str], later: Mapping[str, str]) -> dict[str, str]:
    """Return both cycles' notes; those that differ are joined in order."""
    found = dict(earlier)
    for name, said in later.items():
        before = found.get(name)
        found[name] = said if before in (None, said) else f"{before} | {said}"
    return found
