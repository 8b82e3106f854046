"""Natural: no unlearning at all, only the recovery that other methods end with.

The control of PUF's section V-B. What a method forgets beyond this, it forgets by its step.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from workers.methods.network.base import Hooks, Need, Unlearned, UnlearningCase, method
from workers.methods.network.recovery import Recovery, Step, step_and_recover
from workers.training.fedavg.base import Work


@method("natural")
@dataclass(frozen=True, slots=True)
class Natural:
    """Ordinary rounds among the retained clients."""

    id: ClassVar[str] = "natural"
    version: ClassVar[str] = "2"
    needs: ClassVar[frozenset[Need]] = frozenset()  # nothing
    recovery: Recovery = field(default_factory=Recovery)

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model after recovery. Raises as `step_and_recover`."""
        spelled = f"{self.id}/{self.version} {self!r}"
        return step_and_recover(
            case, spelled, lambda: Step(case.weights, Work(), {}), self.recovery, hooks
        )
