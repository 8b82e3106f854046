"""noisy-finetuning: an (ε, δ) certificate without convexity, for small heads.

Source: Koloskova et al., ICML 2025 (`workers.training.fedavg.noisy` has the steps). The noise
depends only on the registered (ε, δ) and the model's committed key, so the judge can repeat
the run bit for bit.
"""

from dataclasses import dataclass, replace
from time import perf_counter
from typing import ClassVar

from workers.errors import RefusedError
from workers.methods.certified.accounting import Promise, shift_squares, sigma_for
from workers.methods.certified.budget import BudgetSpentError
from workers.methods.certified.noise import commitment, context_of, gaussian, new_key
from workers.methods.network.base import Hooks, Need, Tick, Unlearned, UnlearningCase, method
from workers.training.fedavg.device import facts_of
from workers.training.fedavg.noisy import NoisySteps, check_size, finetune


@method("noisy-finetuning")
@dataclass(frozen=True, slots=True)
class NoisyFinetuning:
    """steps, learning_rate, pull: of the noisy steps. start_norm, gradient_norm: C₀ and C₁.

    epsilon, delta: for all releases together between two trainings. recovery_rounds: rounds
    of the registered training afterwards, without noise. before: the number of releases since
    the last training; ordinal: the number of versions in the model's whole life, so that no
    two releases share their noise. Raises RefusedError for a value out of range.
    """

    id: ClassVar[str] = "noisy-finetuning"
    version: ClassVar[str] = "1"
    needs: ClassVar[frozenset[Need]] = frozenset()
    steps: int = 4
    learning_rate: float = 0.1
    pull: float = 0.0
    start_norm: float = 0.002
    gradient_norm: float = 0.002
    epsilon: float = 1.0
    delta: float = 1e-5
    releases: int = 4
    recovery_rounds: int = 4
    before: int = 0
    ordinal: int = 0

    def __post_init__(self) -> None:
        for name in ("before", "ordinal"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise RefusedError(f"{name}: must be an integer, 0 or more")
        _ = self.chosen

    @property
    def chosen(self) -> NoisySteps:
        """The steps with the σ that the promise needs."""
        given = self.start_norm, self.gradient_norm, self.learning_rate, self.pull
        checked = NoisySteps(self.steps, *given, 1.0, self.recovery_rounds)
        promise = Promise(self.epsilon, self.delta, self.releases)
        return replace(checked, sigma=sigma_for(promise, shift_squares(self.steps, *given)))

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model to publish, with noise of a new key. Raises as `keyed`."""
        return self.keyed(case, new_key(), hooks)

    def keyed(self, case: UnlearningCase, key: bytes, hooks: Hooks | None = None) -> Unlearned:
        """Return the model to publish, a function of the case and the key, 32 bytes.

        An interrupted run starts over and ends with the same bits. Raises BudgetSpentError,
        RefusedError for a network too large, RoundFailedError, DivergedError.
        """
        hooks, started = hooks or Hooks(), perf_counter()
        check_size(case.network)
        if self.before >= self.releases:
            raise BudgetSpentError(
                f"the noise was registered for {self.releases} releases between trainings, "
                "and they were made: use retrain, which begins a new budget"
            )
        if not case.data:
            raise RefusedError("noise is drawn for rows: give the digest of those who stay")
        chosen, context = self.chosen, context_of(case.data, self.ordinal)

        def tell(phase: str, done: int) -> None:
            if hooks.tell is not None and phase == "step":
                hooks.tell(Tick("step", done, chosen.steps))
            elif hooks.tell is not None:
                hooks.tell(Tick("recovery", done, chosen.recovery_rounds))

        weights, work = finetune(
            case.network,
            case.weights,
            case.retained.rows,
            case.config,
            case.retained.engine,
            chosen,
            lambda step, size: gaussian(key, f"{context}|noisy {step}", size),
            tell,
        )
        notes = {
            **facts_of(case.retained.engine, case.config.local),
            "noisy.steps": str(chosen.steps),
            "noisy.learning-rate": repr(float(chosen.learning_rate)),
            "noisy.pull": repr(float(chosen.pull)),
            "noisy.start-norm": repr(float(chosen.start_norm)),
            "noisy.gradient-norm": repr(float(chosen.gradient_norm)),
            "noise.sigma": repr(chosen.sigma),
            "noise.epsilon": repr(float(self.epsilon)),
            "noise.delta": repr(float(self.delta)),
            "noise.release": f"{self.before + 1} of {self.releases}",
            "noise.commitment": commitment(key),
            "recovery.rounds": str(chosen.recovery_rounds),
        }
        work = work + type(work)(seconds=perf_counter() - started - work.seconds)
        return Unlearned(weights, work, "certified-approximate", notes)
