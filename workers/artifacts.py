"""Heads and states as safetensors files, each with exactly one encoding: see tensor_file.py.

Parsing is by round trip: bytes that the encoder would not write are rejected.
"""

from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.arrays import MALFORMED, Head, Matrix, dtype_name, encode_tensors, parse_tensors
from workers.errors import ArtifactError, RefusedError
from workers.methods.ridge.base import RidgeConfig, RidgeState
from workers.methods.ridge.statistics.gram import RidgeStatistics

# A correctly rounded float32 head is a pure function of the retained rows; a float64 head is
# whatever its method computed; the kind tells them apart.
HEAD_KINDS = {"F32": "ridge-head/1", "F64": "ridge-head-float64/1"}
STATE_KIND, TRACKED_STATE_KIND = "ridge-state/1", "ridge-state-tracked/1"
SKETCHED_STATE_KIND = "ridge-state-sketched/1"

_Arrays = dict[str, NDArray[Any]]


def encode_head(head: Head | Matrix, config: RidgeConfig) -> bytes:
    """Return the model file of a head (d, c) float32 or float64: a pure function.

    Raises ArtifactError for another shape or type, or a head that is not finite.
    """
    kind = HEAD_KINDS.get(dtype_name(head))
    if head.shape != (config.dimension, config.classes) or kind is None:
        raise ArtifactError("the head does not fit its configuration")
    if not np.isfinite(head).all():
        raise ArtifactError("the head holds NaN or infinity")
    metadata = {
        "bits": config.bits,
        "classes": config.classes,
        "dimension": config.dimension,
        "exponents": list(config.exponents),
        "kind": kind,
        "penalty": config.penalty.hex(),  # exact, with one spelling
    }
    return encode_tensors({"head": head}, metadata)


def decode_head(data: bytes) -> tuple[Head | Matrix, RidgeConfig]:
    """Return (head, config) of a model file, the head with the head in its original dtype.

    Raises ArtifactError for any other bytes.
    """
    try:
        arrays, metadata = parse_tensors(data)
        config = RidgeConfig(
            metadata["dimension"],
            metadata["classes"],
            tuple(metadata["exponents"]),
            metadata["bits"],
            float.fromhex(metadata["penalty"]),
        )
        if encode_head(arrays["head"], config) == data:
            return arrays["head"], config
    except _MALFORMED:
        pass  # reported below, like bytes that parse but differ
    raise ArtifactError("these bytes are not a canonical head file: fetch it again")


def encode_state(state: RidgeState) -> bytes:
    """Return a state as one file. It holds sums over the training rows: keep it sealed.

    Raises ArtifactError if the parts do not fit each other.
    """
    shape = state.statistics.moment.shape
    if state.head.shape != shape or state.witness.shape[1:] != shape:
        raise ArtifactError("the head and the witness do not fit the statistics")
    arrays: _Arrays = {
        "gram": state.statistics.gram,
        "head": state.head,
        "moment": state.statistics.moment,
        "witness": state.witness,
    }
    metadata: dict[str, object] = {
        "bound": float(state.bound).hex(),
        "kind": STATE_KIND,
        "rows": state.statistics.rows,
    }
    if state.inverse is not None:
        if state.inverse.shape != (shape[0], shape[0]):
            raise ArtifactError("the tracked inverse does not fit the statistics")
        arrays["inverse"] = state.inverse
        metadata.update(kind=TRACKED_STATE_KIND, updates=state.updates)
    _add_sketched(state, arrays, metadata)
    if any(dtype_name(array) not in _STATE_DTYPES[name] for name, array in arrays.items()):
        raise ArtifactError("a part of the state has another type")
    return encode_tensors(arrays, metadata)


def decode_state(data: bytes) -> RidgeState:
    """Return the state of a state file. Raises ArtifactError for any other bytes."""
    try:
        arrays, metadata = parse_tensors(data)
        gram, moment, inverse = arrays["gram"], arrays["moment"], arrays.get("inverse")
        bound, updates = float.fromhex(metadata["bound"]), metadata.get("updates", 0)
        symmetric = gram.shape == (len(moment), len(moment)) and (gram == gram.T).all()
        if inverse is not None:  # NaN would fail the symmetry check
            symmetric = symmetric and bool((inverse == inverse.T).all())
            symmetric = symmetric and bool(np.isfinite(inverse).all())
        if symmetric and type(updates) is int and updates >= 0 and 0 <= bound < inf:
            statistics = RidgeStatistics(gram, moment, metadata["rows"])
            head, witness = arrays["head"], arrays["witness"]
            sketched = None
            if "sketched_gram" in arrays:
                sketched = RidgeStatistics(arrays["sketched_gram"], moment, statistics.rows)
            drift = float.fromhex(metadata.get("drift", "0x0.0p+0"))
            attested = float.fromhex(metadata.get("attested", "0x0.0p+0"))
            state = RidgeState(
                statistics, head, witness, bound, inverse, updates, sketched, drift, attested
            )
            if encode_state(state) == data:
                return state
    except _MALFORMED:
        pass  # reported below, like bytes that parse but differ
    raise ArtifactError("these bytes are not a canonical state file: fetch it again")


def _add_sketched(state: RidgeState, arrays: _Arrays, metadata: dict[str, object]) -> None:
    """Add the fields of a state that follows sketches. Raises ArtifactError."""
    if not (0 <= state.drift < inf and 0 <= state.attested < inf):
        raise ArtifactError("the drift of the sketches is not a number")
    if state.sketched is None:
        if state.drift or state.attested:
            raise ArtifactError("only a state that follows sketches drifts from its statistics")
        return
    exact, follows = state.statistics, state.sketched
    # Only the Gram matrix is sketched: the rest is not written twice.
    same = follows.rows == exact.rows and np.array_equal(follows.moment, exact.moment)
    square = follows.gram.shape == exact.gram.shape
    if not (same and square and np.array_equal(follows.gram, follows.gram.T)):
        raise ArtifactError("the sketched statistics do not fit the exact ones")
    arrays["sketched_gram"] = follows.gram
    metadata.update(
        attested=float(state.attested).hex(),
        drift=float(state.drift).hex(),
        kind=SKETCHED_STATE_KIND,
    )


_STATE_DTYPES = {
    "gram": ("I64",),
    "head": ("F32", "F64"),
    "inverse": ("F64",),
    "moment": ("I64",),
    "sketched_gram": ("I64",),
    "witness": ("F64",),
}
_MALFORMED = (RefusedError, *MALFORMED)
