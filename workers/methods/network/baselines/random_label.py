"""RandomLabel: learn wrong labels for the rows to forget, together with the retained rows.

Source: the baseline of Golatkar et al., "Eternal Sunshine of the Spotless Net", CVPR 2020,
trained for 10 epochs on both sets by ACU's appendix E.3; the paper was not available. The new
labels are drawn once, uniformly over the *other* classes: a common implementation
(OPTML-Group/Unlearn-Saliency) draws over all of them, again in each epoch, and so keeps one
label in c right at a time. Here no label is ever right. Each pixel's label is drawn
separately.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from workers.errors import RefusedError
from workers.methods.network.base import UnlearningCase, method
from workers.methods.network.baselines.central import Gathered, Tell
from workers.methods.network.baselines.descent import Descent, DescentMethod
from workers.methods.network.recovery import Step
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.seeds import derive, stream


@method("random-label")
@dataclass(frozen=True, slots=True)
class RandomLabel(DescentMethod):
    """Ordinary minibatch steps on all rows, in one shuffled order."""

    id: ClassVar[str] = "random-label"

    def step(self, case: UnlearningCase, rows: Gathered, tell: Tell) -> Step:
        """Return the weights after all epochs. Rows are not augmented: the sets are mixed."""
        wrong = other_labels(rows.forget_rows.targets, case.network.classes, rows.seed)
        mixed = ClientData(
            torch.cat([rows.retained_rows.inputs, rows.forget_rows.inputs]),
            torch.cat([rows.retained_rows.targets, wrong]),
        )
        descent = Descent(case, self.passes(), rows.device)
        for epoch in range(self.epochs):
            loss = descent.epoch(mixed, descent.loss, seed=derive(rows.seed, "epoch", epoch))
            tell(epoch + 1, self.epochs, loss)
        notes = {"labels.drawn": "once, uniform over the other classes"}
        return Step(descent.weights, descent.work, {**notes, **descent.notes(self.epochs)})


def other_labels(targets: torch.Tensor, classes: int, seed: int) -> torch.Tensor:
    """Return a label for each target (any shape), uniform over the classes it is not.

    Raises RefusedError where there is no other class.
    """
    if classes < 2:
        raise RefusedError("there is no other label to draw: a single class, use retrain")
    # A shift of 1, …, c - 1 around the circle never comes back to where it started.
    shift = stream(seed, "labels").integers(1, classes, tuple(targets.shape), dtype=np.int64)
    return (targets + torch.from_numpy(shift).to(targets.device)) % classes
