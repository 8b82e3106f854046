"""NoT: the first layer's kernel changes its sign; ordinary rounds repair the rest.

Source: Khalil et al., "NoT: Federated Unlearning via Weight Negation", CVPR 2025, as PUF's
section II and appendix A describe it ("we negated the weights of the first layer"); the paper
itself was not available. Kernel only, the bias stays. The model after the negation does not
depend on who is forgotten (PUF): only the recovery forgets selectively.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from workers.methods.network.base import Hooks, Need, Unlearned, UnlearningCase, method
from workers.methods.network.baselines.layers import first_kernel
from workers.methods.network.recovery import Recovery, Step, step_and_recover
from workers.training.fedavg.base import Work


@method("not")
@dataclass(frozen=True, slots=True)
class NoT:
    """Negation and recovery."""

    id: ClassVar[str] = "not"
    version: ClassVar[str] = "1"
    needs: ClassVar[frozenset[Need]] = frozenset()  # nothing
    recovery: Recovery = field(default_factory=Recovery)

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model after negation and recovery. Raises as `step_and_recover`."""
        spelled = f"{self.id}/{self.version} {self!r}"
        return step_and_recover(case, spelled, lambda: self._step(case), self.recovery, hooks)

    def _step(self, case: UnlearningCase) -> Step:
        kernel = first_kernel(case.network)
        weights = {
            name: -part if name == kernel else part for name, part in case.weights.items()
        }
        return Step(weights, Work(), {"not.negated": kernel, "state.bytes": "0"})
