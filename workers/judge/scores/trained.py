"""The scores file's part about the judge's own models: their outputs and their cost.

The models are not kept: reference models have seen erased rows. Which of them saw which row is
not kept either, but redrawn from the seed (`halves`). Of the parameters only the gap is kept,
two numbers, which decide nothing.
"""

from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.errors import ArtifactError
from workers.judge.policy.policy import LEAST_REFERENCES, MOST_REFERENCES
from workers.judge.samples.empirical_claim import EmpiricalClaim, ReferenceModels, TrainingCost
from workers.judge.samples.halves import halves
from workers.judge.scores.committed_rows import CommittedRows

MEMBER = "trained"
REFERENCES, RETRAINED, GAP = "references", "retrained", "parameter_gap"
RETAINED = "retrained_retained"


def write_trained(
    claim: EmpiricalClaim, rows: CommittedRows
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return arrays and metadata, both empty if the judge did not have to train anything.

    Raises ArtifactError for reference models that were not trained on the rows drawn by the
    seed, and for outputs without a training cost.
    """
    if claim.trained is None:
        models = (claim.references, claim.retrained, claim.retrained_retained)
        if any(part is not None for part in (*models, claim.parameter_gap)):
            raise ArtifactError("what was trained for a verdict needs its cost beside it")
        return {}, {}
    arrays: dict[str, NDArray[Any]] = {}
    if claim.references is not None:
        logits, included = claim.references.logits, claim.references.included
        drawn = halves(claim.seed, len(logits), [*rows.forget, *rows.pool])
        if included.shape != drawn.shape or (included != drawn).any():
            raise ArtifactError("a reference model was trained on other rows than were drawn")
        arrays[REFERENCES] = _floats(logits)
    if claim.retrained is not None:
        arrays[RETRAINED] = _floats(claim.retrained)
    if claim.retrained_retained is not None:
        arrays[RETAINED] = _floats(claim.retrained_retained)
    gap = None if claim.parameter_gap is None else list(claim.parameter_gap)
    return arrays, {MEMBER: {**asdict(claim.trained), GAP: gap}}


def read_trained(
    arrays: Mapping[str, NDArray[Any]],
    said: Mapping[str, Any],
    seed: bytes,
    rows: CommittedRows,
) -> dict[str, Any]:
    """Return the fields of a claim that `write_trained` wrote.

    Raises ArtifactError, or one of `tensor_file.MALFORMED`, for anything else.
    """
    if MEMBER not in said:
        return {}
    fields = dict(said[MEMBER])
    gap = fields.pop(GAP)
    trained = TrainingCost(**fields)
    counts = (trained.references, trained.retrained)
    if any(type(count) is not int or count < 0 for count in counts):
        raise ArtifactError("operations are counted from 0")
    if type(trained.missing) is not str:
        raise ArtifactError("a reason is given in words")
    found: dict[str, Any] = {name: arrays.get(name) for name in (RETRAINED, RETAINED)}
    found[MEMBER] = trained
    found[GAP] = None if gap is None else _gap(*gap)
    if REFERENCES in arrays:
        logits = arrays[REFERENCES]
        tested = [*rows.forget, *rows.pool]
        if logits.ndim != 3 or logits.shape[1] != len(tested):
            raise ArtifactError("reference models answer with a matrix each, a row for a row")
        if not LEAST_REFERENCES <= len(logits) <= MOST_REFERENCES:
            # Models without outputs take no bytes, but the draw takes some for each.
            raise ArtifactError("no policy asks for so many reference models")
        drawn = halves(seed, len(logits), tested)
        found[REFERENCES] = ReferenceModels(logits, drawn)
    return found


def _gap(absolute: float, relative: float) -> tuple[float, float]:
    if not all(type(one) is float and isfinite(one) for one in (absolute, relative)):
        raise ArtifactError("a gap is two numbers")
    return absolute, relative


def _floats(logits: NDArray[Any]) -> NDArray[Any]:
    if logits.dtype != np.float64:
        raise ArtifactError("scores are float64 logits")
    return logits
