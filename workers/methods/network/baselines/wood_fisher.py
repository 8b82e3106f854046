"""WoodFisher: one influence step, with the inverse of the empirical Fisher matrix for H⁻¹.

Source: the inverse is Singh and Alistarh's, "WoodFisher", NeurIPS 2020: F₀ = λI, and with g_i
the gradient of row i of N,

    F_i⁻¹ = F_{i-1}⁻¹ - (F_{i-1}⁻¹ g_i)(F_{i-1}⁻¹ g_i)ᵀ / (N + g_iᵀ F_{i-1}⁻¹ g_i)

so that F_N = λI + (1/N) Σ g_i g_iᵀ. As an unlearning step it is the "IU" of Jia et al.,
NeurIPS 2023. Code of the same group (Unlearn-Saliency, Wfisher.py) keeps the *first* row's
gradient in place of F_{i-1}⁻¹ g_i and only rescales it, and so inverts another matrix. Here
every row has its own: the recursion is unrolled, which is Woodbury's identity,

    F_N⁻¹ v = (v - Gᵀ (NλI + GGᵀ)⁻¹ G v) / λ,   the g_i being the rows of G

the same matrix at N²P operations, one Cholesky factor and no loss of digits from row to row.

The step is w + α F⁻¹ v, v = (1/n) Σ_F g - m/(n(n-m)) Σ_R g with m of n rows to forget. Where
all gradients sum to zero, v is Σ_F g / (n - m): the corrected step of HF-KCU. The papers were
not available; λ and N are lost in ACU's text. Of a model that fits its rows the empirical
Fisher is far from the Hessian (Kunstner et al., NeurIPS 2019): a SimpleCNN on digits fell
from 0.99 to 0.67 test accuracy at λ 0.1 and to chance at 0.01. So λ is 1, the F₀ of that code
too, and there is a guard. 100 samples did as well there as 1000, whose N²P operations
exceeded a retraining's.
"""

from dataclasses import dataclass, field, replace
from math import isfinite
from typing import ClassVar

import torch

from workers.errors import RefusedError
from workers.methods.network.base import Hooks, Need, Unlearned, UnlearningCase, method
from workers.methods.network.baselines.central import Gathered, Pool, Tell, unlearn
from workers.methods.network.guard import StepGuard, along, take_step
from workers.methods.network.recovery import Recovery, Step
from workers.training.fedavg.base import ClientData, Work
from workers.training.fedavg.client.curvature import operation_flops, product
from workers.training.fedavg.errors import DivergedError
from workers.training.fedavg.seeds import stream
from workers.training.networks.weights import count, from_vector, norm, to_vector, with_weights

BLOCK = 1 << 16  # columns of G that are in float64 at a time


@method("wood-fisher")
@dataclass(frozen=True, slots=True)
class WoodFisher:
    """scale is α, damping λ, samples at most N: retained rows, drawn without replacement.

    Without a guard the step is α, as published. memory bounds the bytes of G, 4 N P.
    Raises RefusedError for a value out of range.
    """

    id: ClassVar[str] = "wood-fisher"
    version: ClassVar[str] = "1"
    pools: ClassVar[frozenset[Pool]] = frozenset({"forget", "retained"})  # all rows
    scale: float = 1.0
    damping: float = 1.0
    samples: int = 1000
    guard: StepGuard | None = None
    memory: int = 4 << 30
    recovery: Recovery = field(default_factory=lambda: Recovery(rounds=0))

    def __post_init__(self) -> None:
        for name in ("scale", "damping"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise RefusedError(f"{name}: must be a positive number")
        if type(self.samples) is not int or not 1 <= self.samples <= 1 << 16:
            raise RefusedError("samples: must be an integer from 1 to 65536")
        if type(self.memory) is not int or self.memory < 1:
            raise RefusedError("memory: must be a whole number of bytes, 1 or more")

    @property
    def needs(self) -> frozenset[Need]:
        """The targets once more; validation rows if the step is guarded."""
        if self.guard is None:
            return frozenset({"targets"})
        return frozenset({"targets", "validation"})

    def run(self, case: UnlearningCase, hooks: Hooks | None = None) -> Unlearned:
        """Return the model after the step. Raises as `central.unlearn`, and NoSafeStepError."""
        return unlearn(self, case, hooks)

    def step(self, case: UnlearningCase, rows: Gathered, tell: Tell) -> Step:
        """Return w + α F⁻¹ v. Raises RefusedError, before any work, if G is too large."""
        used, parameters = min(self.samples, len(rows.retained_rows)), count(case.network)
        if 4 * used * parameters > self.memory:
            fit = self.memory // (4 * parameters)
            raise RefusedError(
                f"the gradients of {used} rows do not fit the memory allowed: at most {fit} "
                "samples do; lower samples, or use hf-kcu"
            )
        drawn = stream(rows.seed, "samples").permutation(len(rows.retained_rows))[:used]
        chosen = rows.retained_rows.only(torch.from_numpy(drawn).sort().values)
        meter = _Gradients(case, rows.device)
        forget, retained = meter.mean(rows.forget_rows), meter.mean(rows.retained_rows)
        tell(1, 2, meter.loss)
        share = len(rows.forget_rows) / (len(rows.forget_rows) + len(rows.retained_rows))
        direction = fisher_inverse_times(
            meter.rows(chosen), share * (forget - retained), self.damping
        )
        # The matrix, its factor, and two products with G.
        meter.flops += 2 * used**2 * parameters + used**3 // 3 + 8 * used * parameters
        found = from_vector(direction, case.network)
        if not all(bool(torch.isfinite(part).all()) for part in found.values()):
            raise DivergedError("the step is not finite: raise damping, or use retrain")
        stepped = take_step(
            along(case.weights, found), self.scale, judge=case.validation, guard=self.guard
        )
        tell(2, 2, meter.loss)
        notes = {
            "fisher.damping": f"{self.damping:.6g}",
            "fisher.direction-norm": f"{norm(found):.6g}",
            "fisher.samples": str(used),
            **stepped.notes(),
        }
        work = Work(steps=meter.steps, flops=meter.flops)
        return Step(stepped.weights, work + replace(stepped.work, seconds=0.0), notes)


class _Gradients:
    """Gradients of the training's loss at the case's weights, and their work."""

    def __init__(self, case: UnlearningCase, device: torch.device | str) -> None:
        self.network, self.config, self.device = case.network, case.config.local, device
        self.module = with_weights(case.network, case.weights, device)
        self.steps = self.flops = 0
        self.loss = 0.0  # mean over the rows that were last averaged

    def mean(self, rows: ClientData) -> torch.Tensor:
        """Return the mean gradient (P,) float64 over all rows, in their order."""
        total = torch.zeros(count(self.network), dtype=torch.float64, device=self.device)
        self.loss = 0.0
        for start in range(0, len(rows), self.config.batch_size):
            part = slice(start, start + self.config.batch_size)
            loss, found = self._of(rows, part)
            share = len(rows.targets[part]) / len(rows)
            total += share * found.double()
            self.loss += share * loss
        return total

    def rows(self, rows: ClientData) -> torch.Tensor:
        """Return each row's own gradient, (n, P) float32."""
        each = torch.empty((len(rows), count(self.network)), device=self.device)
        for row in range(len(rows)):
            each[row] = self._of(rows, slice(row, row + 1))[1]
        return each

    def _of(self, rows: ClientData, part: slice) -> tuple[float, torch.Tensor]:
        batch = rows.inputs[part].to(self.device), rows.targets[part].to(self.device)
        loss, found = product("gradient", self.module, self.config.loss, batch, None)
        gradient = to_vector(found)
        if not isfinite(loss) or not bool(torch.isfinite(gradient).all()):
            raise DivergedError("a row has no finite gradient at these weights: use retrain")
        each = operation_flops(self.network, self.config.loss, "gradient")
        self.steps, self.flops = self.steps + 1, self.flops + len(batch[0]) * each
        return loss, gradient


def fisher_inverse_times(
    gradients: torch.Tensor, vector: torch.Tensor, damping: float
) -> torch.Tensor:
    """Return (λI + GᵀG / N)⁻¹ v, (P,) float64, of G (N, P) and v (P,), λ > 0.

    All sums are in float64, a block of columns at a time: G itself is not copied.
    """
    rows, blocks = len(gradients), range(0, gradients.shape[1], BLOCK)
    vector = vector.double()
    kernel = torch.zeros((rows, rows), dtype=torch.float64, device=gradients.device)
    along_rows = torch.zeros(rows, dtype=torch.float64, device=gradients.device)
    for start in blocks:
        part = gradients[:, start : start + BLOCK].double()
        kernel += part @ part.T
        along_rows += part @ vector[start : start + BLOCK]
    kernel.diagonal().add_(rows * damping)
    factor = torch.linalg.cholesky(kernel)
    solved = torch.cholesky_solve(along_rows[:, None], factor)[:, 0]
    parts = [
        vector[start : start + BLOCK] - gradients[:, start : start + BLOCK].double().T @ solved
        for start in blocks
    ]
    return torch.cat(parts) / damping
