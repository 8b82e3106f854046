"""Extractors by the name and parameters a model was registered with."""

from collections.abc import Callable, Mapping

from workers.errors import RefusedError
from workers.extractors.base import Extractor
from workers.extractors.identity import Identity
from workers.extractors.random_relu import RandomRelu

_Build = Callable[[Mapping[str, float]], Extractor]


def _identity(parameters: Mapping[str, float]) -> Extractor:
    return Identity(int(parameters["dimension"]))


def _random_relu(parameters: Mapping[str, float]) -> Extractor:
    inputs, outputs = int(parameters["inputs"]), int(parameters["outputs"])
    seed, scale = int(parameters["seed"]), float(parameters["scale"])
    return RandomRelu(inputs, outputs, seed, scale)


_EXTRACTORS: dict[str, _Build] = {"identity": _identity, "random-relu": _random_relu}


def get(extractor_id: str, parameters: Mapping[str, float]) -> Extractor:
    """Return the extractor of that name, built from what its `parameters` gave.

    Raises RefusedError for an unknown name (naming the known ones) or bad parameters.
    """
    try:
        build = _EXTRACTORS[extractor_id]
    except KeyError:
        raise RefusedError(f"unknown extractor: choose one of {', '.join(known())}") from None
    try:
        extractor = build(parameters)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RefusedError(f"{extractor_id}: a parameter is missing or no number") from None
    if dict(extractor.parameters) != dict(parameters):
        raise RefusedError(f"{extractor_id}: a parameter is unknown or not canonical")
    return extractor


def known() -> tuple[str, ...]:
    """Return the names of all extractors, sorted."""
    return tuple(sorted(_EXTRACTORS))
