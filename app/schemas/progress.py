"""How far a long computation is, on the wire."""

from typing import Literal

from app.schemas.base import Wire

Phase = Literal["training", "step", "recovery", "retraining", "repetition", "references"]


class ProgressView(Wire):
    """What a worker does now, and how much of it is finished: counts, and nothing of the data.

    training: of a registered or contributed model. step and recovery: of an unlearning
    method. retraining: without what is erased. repetition: the verifier trains once more, to
    compare. references: models that the verifier trains for its tests. done is of total
    `unit`s; after an interruption it may fall back to where the work goes on.
    """

    phase: Phase
    done: int
    total: int
    unit: Literal["rounds", "steps", "models"]
