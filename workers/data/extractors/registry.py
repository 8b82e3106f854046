"""Extractors by the name and parameters a model was registered with."""

from collections.abc import Callable
from pathlib import Path

from workers.data.extractors.base import Extractor, ExtractorError, Parameters
from workers.data.extractors.identity import Identity
from workers.data.extractors.random_relu import RandomRelu
from workers.errors import RefusedError

_Build = Callable[[Parameters], Extractor]
_Load = Callable[[Path, Parameters], Extractor]


def _identity(parameters: Parameters) -> Extractor:
    return Identity(int(parameters["dimension"]))


def _random_relu(parameters: Parameters) -> Extractor:
    inputs, outputs = int(parameters["inputs"]), int(parameters["outputs"])
    seed, scale = int(parameters["seed"]), float(parameters["scale"])
    return RandomRelu(inputs, outputs, seed, scale)


# The loaders import torch, sentence-transformers or timm: each only when requested.


def _torch_module(path: Path, _: Parameters) -> Extractor:
    from workers.libraries import require

    require("torch", "torch")
    from workers.data.extractors.torch_module import load

    return load(path)


def _sentence_transformers(path: Path, _: Parameters) -> Extractor:
    from workers.data.extractors.sentence_embedding import load

    return load(path)


def _timm(path: Path, parameters: Parameters) -> Extractor:
    from workers.data.extractors.image_embedding import load

    return load(path, parameters["model"])


_COMPUTED: dict[str, _Build] = {"identity": _identity, "random-relu": _random_relu}
_LOADED: dict[str, _Load] = {
    "sentence-transformers": _sentence_transformers,
    "timm": _timm,
    "torch-module": _torch_module,
}
_DEFAULTS: dict[str, Parameters] = {"random-relu": {"scale": "1.0", "seed": "0"}}
_WIDTH = {"identity": "dimension", "random-relu": "inputs"}


def get(
    extractor_id: str,
    parameters: Parameters,
    *,
    path: Path | None = None,
    digest: str | None = None,
) -> Extractor:
    """Return the extractor of that name, built from the output of its `parameters`.

    `path` leads to its files, if it has any; `digest` (hex) pins what must be found there.
    Raises RefusedError for an unknown name (naming the known ones), bad parameters, a file
    or library that is missing, or another digest.
    """
    try:
        if extractor_id in _LOADED:
            if path is None:
                raise ExtractorError(f"{extractor_id}: give the path of its files (--path)")
            extractor = _LOADED[extractor_id](path, parameters)
        elif extractor_id in _COMPUTED:
            extractor = _COMPUTED[extractor_id](parameters)
        else:
            raise RefusedError(f"unknown extractor: choose one of {', '.join(known())}")
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RefusedError(
            f"{extractor_id}: a parameter is missing, or of another type than it must have"
        ) from None
    if dict(extractor.parameters) != dict(parameters):
        raise RefusedError(
            f"{extractor_id}: a parameter is unknown, or not spelled as `lethe "
            "features extract` writes it"
        )
    check_digest(extractor, digest)
    return extractor


def open_extractor(
    extractor_id: str,
    given: Parameters,
    *,
    path: Path | None = None,
    digest: str | None = None,
    width: int | None = None,
) -> Extractor:
    """Return an extractor to be registered: parameters that can be derived may be omitted.

    `width` is the number of columns of a matrix of inputs, if they are one. Given parameters
    must match the extractor's. Raises as `get`.
    """
    if extractor_id in _LOADED:
        if path is None:
            raise ExtractorError(f"{extractor_id}: give the path of its files (--path)")
        try:
            found = _LOADED[extractor_id](path, given)
        except KeyError as error:
            raise RefusedError(f"{extractor_id}: the parameter {error} is missing") from None
        if not given.items() <= found.parameters.items():
            raise ExtractorError(
                f"{extractor_id}: its files have other parameters than those given: "
                "leave them out, or give the path of the right files"
            )
        check_digest(found, digest)
        return found
    parameters = {**_DEFAULTS.get(extractor_id, {}), **given}
    if width is not None and extractor_id in _WIDTH:
        parameters.setdefault(_WIDTH[extractor_id], str(width))
    return get(extractor_id, parameters, digest=digest)


def check_digest(extractor: Extractor, digest: str | None) -> None:
    """Raise ExtractorError unless the extractor is the pinned one (None: no pin)."""
    if digest is not None and extractor.digest != digest.lower():
        raise ExtractorError(
            f"{extractor.id}: the digest differs from the pinned one: "
            "use the very files the model was registered with"
        )


def known() -> tuple[str, ...]:
    """Return the names of all extractors, sorted."""
    return tuple(sorted({*_COMPUTED, *_LOADED}))
