"""The input of the verifier of `empirical-approximate`.

Logits are float64 (n, c), of the version before unlearning and of the published one; the
verifier's task, or silos on its behalf, computed them from the model files, never the method.
Rows are in the same order throughout; clients are any comparable values.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Labels, Matrix
from workers.judge.base import PurgeClaim, RetainedSetClaim
from workers.judge.policy.policy import Policy
from workers.judge.samples.canary import CanaryClaim
from workers.judge.silos import SilosClaim


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceModels:
    """m models that the judge trained: logits (m, n, c) on forget rows, then all pool rows.

    included (m, n) bool: which model was trained on which row, as `halves` draws it.
    """

    logits: NDArray[np.float64]
    included: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """The cost of the judge's own trainings, in the operations that `cost.flops` counts.

    references: of all reference models; retrained: of the model for the distances. missing: why
    models that the policy requires were not trained, empty if they were.
    """

    references: int = 0
    retrained: int = 0
    missing: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class EmpiricalClaim:
    """A published approximate unlearning and the rows to test it on.

    model: hex SHA-256 recomputed from the model file. finite: whether all its numbers are
    finite.
    forget: the erased rows that were trained on. pool: held-out rows that no version was
    trained on; those of the forget set's clients are candidates for matched non-members, and
    all others calibrate attacks and measure accuracy too. retained: a sample of retained
    training rows.
    unseen: how many of the pool rows were erased. Each erased record must have scores, as a
    forget row or as one of these.
    requests_before: earlier requests that spent alpha of this model. seed: at least 16 random
    bytes, drawn after published_digest was committed. retrained: logits (f + p, c) of a
    retrained model on forget and pool rows; parameter_gap: of the published model to it, as
    `distances.parameter_gap` returns it. retrained_retained: logits (r, c) of the retrained
    model on the retained rows. trained: the cost of these and the references.
    policy_digest: as logged at registration. rows_before, rows_after, model_before: hex SHA-256
    as published and as recomputed, of all rows of the versions and of the model file before:
    they tie the tests to what was published. silos: which silos answered, if the rows are with
    silos.
    """

    retained_set: RetainedSetClaim
    purge: PurgeClaim
    published_digest: str
    model: str
    finite: bool
    forget_labels: Labels
    forget_clients: NDArray[np.generic]
    forget_before: Matrix
    forget_after: Matrix
    pool_labels: Labels
    pool_clients: NDArray[np.generic]
    pool_before: Matrix
    pool_after: Matrix
    retained_labels: Labels
    retained_before: Matrix
    retained_after: Matrix
    policy: Policy
    policy_digest: str
    requests_before: int
    seed: bytes
    rows_before: tuple[str, str]
    rows_after: tuple[str, str]
    model_before: tuple[str, str]
    retrained: Matrix | None = None
    retrained_retained: Matrix | None = None
    parameter_gap: tuple[float, float] | None = None
    references: ReferenceModels | None = None
    trained: TrainingCost | None = None
    canary: CanaryClaim | None = None
    silos: SilosClaim | None = None
    unseen: int = 0
