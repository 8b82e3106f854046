"""Frozen feature extractors: the part of the model that no erasable record ever touched."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workers.errors import RefusedError

Features = NDArray[np.floating[Any]]


class Extractor(Protocol):
    """A deterministic map φ from inputs to features, fixed before any record was seen."""

    @property
    def id(self) -> str:
        """The name under which the registry builds it."""

    @property
    def digest(self) -> str:
        """Hex SHA-256 over the weights and the preprocessing."""

    @property
    def parameters(self) -> Mapping[str, float]:
        """What the registry needs, besides the name, to build it again."""

    def extract(self, inputs: Features) -> Features:
        """Return features (n, d) of inputs (n, p), float32 or float64.

        Raises RefusedError if the inputs have another width or hold NaN or infinity.
        """


def check_inputs(inputs: Features, width: int) -> None:
    """Raise RefusedError unless inputs are finite floats of shape (n, width)."""
    if inputs.ndim != 2 or inputs.shape[1] != width:
        raise RefusedError(f"inputs must have {width} columns: check the extractor")
    if inputs.dtype.kind != "f" or not np.isfinite(inputs).all():
        raise RefusedError("inputs must be floats without NaN or infinity: repair the rows")


def digest_of(name: str, parameters: Mapping[str, float], *weights: Features) -> str:
    """Return the SHA-256 (hex) of a name, its parameters and its weights' bytes."""
    digest = hashlib.sha256()
    exact = {key: float(value).hex() for key, value in parameters.items()}
    digest.update(json.dumps([name, exact], sort_keys=True).encode())
    for array in weights:
        digest.update(f"{array.shape}".encode() + array.astype("<f8").tobytes())
    return digest.hexdigest()
