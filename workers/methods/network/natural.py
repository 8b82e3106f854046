"""Natural: no unlearning at all, only the recovery that other methods end with.

The control of PUF's section V-B. What a method forgets beyond this, it forgets by its step.
"""

from dataclasses import dataclass, field

from workers.methods.network.base import Hooks, Need, Unlearned, UnlearningCase, method
from workers.methods.network.recovery import Recovery, Step, step_and_recover
from workers.training.fedavg.base import Work


@method("natural")
@dataclass(frozen=True, slots=True)
class Natural:
    """Ordinary rounds among those who stay."""

    recovery: Recovery = field(default_factory=Recovery)

    @property
    def id(self) -> str:
        """The method's name."""
        return "natural"

    @property
    def version(self) -> str:
        """The method's version."""
        return "2"

    @property
    def needs(self) -> frozenset[Need]:
        """Nothing."""
        return frozenset()

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model after recovery. Raises as `step_and_recover`."""
        spelled = f"{self.id}/{self.version} {self!r}"
        return step_and_recover(
            case, spelled, lambda: Step(case.weights, Work(), {}), self.recovery, hooks
        )
