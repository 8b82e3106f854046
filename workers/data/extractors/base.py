"""Frozen feature extractors: the part of the model that depends on no erasable record."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from workers.errors import RefusedError

Features = NDArray[np.floating[Any]]
Inputs = NDArray[Any]
Parameters = Mapping[str, str]  # as in a registration
Kind = Literal["features", "texts", "images"]


class ExtractorError(RefusedError):
    """The extractor cannot be opened, is not the pinned one, or computes nothing usable."""


class Extractor(Protocol):
    """A deterministic map φ from inputs to features, fixed before any record was seen."""

    @property
    def id(self) -> str:
        """The name in the registry."""

    @property
    def digest(self) -> str:
        """Hex SHA-256 over the weights and the preprocessing."""

    @property
    def parameters(self) -> Parameters:
        """What the registry needs, besides name and files, to rebuild the extractor."""

    @property
    def kind(self) -> Kind:
        """The kind of inputs: a matrix of numbers, strings, or images of one size."""

    def extract(self, inputs: Inputs) -> Features:
        """Return features (n, d) of n inputs, float32 or float64, finite.

        features: floats (n, p); texts: strings (n,); images: uint8 (n, height, width, 3).
        Raises RefusedError if the inputs have another shape or hold NaN or infinity.
        """


def check_inputs(inputs: Inputs, width: int) -> None:
    """Raise RefusedError unless inputs are finite floats of shape (n, width)."""
    if inputs.ndim != 2 or inputs.shape[1] != width:
        raise RefusedError(f"inputs: must have the {width} columns that the extractor reads")
    if inputs.dtype.kind != "f" or not np.isfinite(inputs).all():
        raise RefusedError("inputs: must be floats without NaN or infinity: repair the rows")


def check_features(features: Inputs, rows: int, width: int) -> Features:
    """Return the features, (rows, width) and finite. Raises ExtractorError otherwise."""
    if features.shape != (rows, width) or features.dtype.kind != "f":
        raise ExtractorError(f"the extractor must give {width} numbers for each input")
    if not np.isfinite(features).all():
        raise ExtractorError("the extractor gave NaN or infinity: its weights are unusable")
    return features


def digest_of(name: str, parameters: Parameters, *weights: Features) -> str:
    """Return the SHA-256 (hex) of a name, its numeric parameters and its weights' bytes."""
    digest = hashlib.sha256()
    exact = {key: float(value).hex() for key, value in parameters.items()}
    digest.update(json.dumps([name, exact], sort_keys=True).encode())
    for array in weights:
        digest.update(f"{array.shape}".encode() + array.astype("<f8").tobytes())
    return digest.hexdigest()


def digest_of_files(name: str, parameters: Parameters, files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 (hex) of a name, its parameters and its files by their roles.

    The hash of [name, parameters, {role: hex SHA-256 of the file}] as JSON with sorted keys
    and without spaces. File paths and times are not included.
    """
    hashes = {role: hashlib.sha256(data).hexdigest() for role, data in files.items()}
    text = json.dumps(
        [name, dict(parameters), hashes],
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return hashlib.sha256(text.encode()).hexdigest()
