"""SCRUB: a student that obeys its teacher, the original model, only about retained rows.

Source: Kurmanji et al., "Towards Unbounded Machine Unlearning", NeurIPS 2023:

    min  α mean_R KL(teacher ‖ student) + γ mean_R ℓ - mean_F KL(teacher ‖ student)

in alternation: in each epoch first a pass over the rows to forget, up their KL, as long as
max-steps are left; then one over the retained rows, down the rest. The KL is at temperature T
and times T², as distillation has it and the implementations seen. 5 epochs, 4 of them with a
max-step, T 4, α = γ = 0.5 are ACU's (appendix E.3); its rate is lost: 0.005 is half of what a
SimpleCNN on digits bore with momentum 0.9, at 0.02 the ascent diverged. The paper was read in
summaries only; its rewinding to the checkpoint of a wanted forget error (SCRUB+R) needs
held-out rows like those to forget and is not done.

At the start student and teacher are equal, where KL has no slope: the first max-step moves
nothing but rounding (and weight decay). With adam, which scales that up, prefer sgd.
"""

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

import torch
from torch.nn import functional

from workers.errors import RefusedError
from workers.methods.network.base import UnlearningCase, method
from workers.methods.network.baselines.central import Gathered, Tell
from workers.methods.network.baselines.descent import Batch, Descent, DescentMethod
from workers.methods.network.recovery import Step
from workers.training.fedavg.client.flops import forward_flops
from workers.training.fedavg.evaluate import loss_of
from workers.training.fedavg.seeds import derive
from workers.training.networks.weights import with_weights


@method("scrub")
@dataclass(frozen=True, slots=True)
class Scrub(DescentMethod):
    """max_steps of the epochs begin with an ascent; alpha, gamma and T as above.

    Raises RefusedError for a value out of range.
    """

    id: ClassVar[str] = "scrub"
    epochs: int = 5
    max_steps: int = 4
    alpha: float = 0.5
    gamma: float = 0.5
    temperature: float = 4.0
    learning_rate: float | None = 5e-3

    def __post_init__(self) -> None:
        DescentMethod.__post_init__(self)
        if type(self.max_steps) is not int or not 0 <= self.max_steps <= self.epochs:
            raise RefusedError("max_steps: must be an integer from 0 to epochs")
        for name in ("alpha", "gamma"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise RefusedError(f"{name}: must be a number, 0 or more")
        if not (isfinite(self.temperature) and self.temperature > 0):
            raise RefusedError("temperature: must be a positive number")

    def step(self, case: UnlearningCase, rows: Gathered, tell: Tell) -> Step:
        """Return the student's weights after all epochs."""
        descent = Descent(case, self.passes(), rows.device)
        teacher = with_weights(case.network, case.weights, rows.device).eval()
        each = forward_flops(case.network)

        def both(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
            with torch.no_grad():
                taught = descent.logits(batch[0], teacher)
            descent.count(len(batch[0]) * each)
            student = descent.logits(batch[0])
            return student, distance(student, taught, self.temperature)

        def disobey(batch: Batch) -> torch.Tensor:
            return -both(batch)[1]

        def obey(batch: Batch) -> torch.Tensor:
            student, apart = both(batch)
            task = loss_of(descent.config.loss, student, batch[1])
            return self.alpha * apart + self.gamma * task

        for epoch in range(self.epochs):
            if epoch < self.max_steps:
                descent.epoch(rows.forget_rows, disobey, seed=derive(rows.seed, "max", epoch))
            seed = derive(rows.seed, "min", epoch)
            mean = descent.epoch(rows.retained_rows, obey, seed=seed, augment=True)
            tell(epoch + 1, self.epochs, mean)
        notes = {
            "scrub.alpha": f"{self.alpha:.6g}",
            "scrub.gamma": f"{self.gamma:.6g}",
            "scrub.max-steps": str(self.max_steps),
            "scrub.temperature": f"{self.temperature:.6g}",
        }
        return Step(descent.weights, descent.work, {**notes, **descent.notes(self.epochs)})


def distance(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return T² · the mean KL(teacher ‖ student), in nats, of logits (n, c, ...) over T."""
    classes = student.shape[1]
    flat = [logits.movedim(1, -1).reshape(-1, classes) for logits in (student, teacher)]
    found, wanted = (functional.log_softmax(logits / temperature, dim=1) for logits in flat)
    apart = functional.kl_div(found, wanted, reduction="batchmean", log_target=True)
    return temperature**2 * apart
