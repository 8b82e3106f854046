"""Texts through a sentence-transformers directory on disk; nothing is downloaded.

Such a directory may hold pickled weights and name Python classes to import. So only its
configuration, vocabulary and safetensors files are copied aside, and the model is loaded from
the copy: the digest covers exactly the files that are read.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from workers.data.extractors.base import (
    ExtractorError,
    Features,
    Inputs,
    Kind,
    Parameters,
    check_features,
    digest_of_files,
)
from workers.libraries import require

# .model is a SentencePiece vocabulary. Other formats of the same weights are in their own
# folders (onnx, openvino) or have other endings (.bin, .h5, .ot), and are ignored.
ENDINGS = frozenset({".json", ".txt", ".safetensors", ".model"})
OTHER_BACKENDS = frozenset({"onnx", "openvino"})
OWN_CLASSES = "sentence_transformers."


@dataclass(frozen=True, slots=True, eq=False)
class SentenceEmbedding:
    """Reads strings (n,); returns float32 (n, dimension), one text at a time.

    In a batch a text would be padded to its longest neighbour and round differently.
    """

    model: Any
    dimension: int
    digest: str
    id: str = "sentence-transformers"
    kind: Kind = "texts"

    @property
    def parameters(self) -> Parameters:
        """The width of the features."""
        return {"dimension": str(self.dimension)}

    def extract(self, inputs: Inputs) -> Features:
        """Return features (n, dimension). Raises RefusedError unless inputs are strings."""
        if inputs.ndim != 1 or inputs.dtype.kind != "U":
            raise ExtractorError("texts must be one string for each row")
        features = np.empty((len(inputs), self.dimension), dtype=np.float32)
        for row, text in enumerate(inputs.tolist()):
            features[row] = check_features(_encode(self.model, text), 1, self.dimension)[0]
        return features


def load(path: Path) -> SentenceEmbedding:
    """Return the extractor of a directory that SentenceTransformer.save wrote.

    Raises ExtractorError if the library or the weights (safetensors) are missing, or the
    directory asks for classes that are not the library's own.
    """
    library = require("sentence_transformers", "text")
    files = _files(path)
    _check_classes(files["modules.json"])
    with TemporaryDirectory() as copied:
        for name, data in files.items():
            target = Path(copied, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        model = _open(library, copied)
    dimension = int(_encode(model, "").shape[1])
    parameters = {"dimension": str(dimension)}
    digest = digest_of_files("sentence-transformers", parameters, files)
    return SentenceEmbedding(model, dimension, digest)


def _open(library: Any, directory: str) -> Any:
    try:
        model = library.SentenceTransformer(
            directory,
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
    except Exception as error:  # a broken file makes the library raise various errors
        raise ExtractorError(
            f"sentence-transformers cannot load the directory ({type(error).__name__}): "
            "save the model with SentenceTransformer.save"
        ) from error
    return model.float().eval()


def _encode(model: Any, text: str) -> Features:
    from workers.data.extractors.inference import frozen

    with frozen():
        found: Features = model.encode(
            [text], batch_size=1, show_progress_bar=False, convert_to_numpy=True, device="cpu"
        )
    return found


def _files(path: Path) -> dict[str, bytes]:
    """Return the relevant files, by their paths in the directory, sorted."""
    try:
        found = {
            name: file.read_bytes()
            for file in sorted(path.rglob("*"))
            if file.suffix in ENDINGS
            and not OTHER_BACKENDS & set((name := file.relative_to(path).as_posix()).split("/"))
        }
    except OSError:
        raise ExtractorError(
            "a file of the directory cannot be read: check its permissions"
        ) from None
    if "modules.json" not in found:
        raise ExtractorError("the directory holds no modules.json: check its path")
    if not any(name.endswith(".safetensors") for name in found):
        raise ExtractorError(
            "the directory holds no .safetensors: save the model again, pickles are not read"
        )
    return found


def _check_classes(modules: bytes) -> None:
    try:
        named = [str(module["type"]) for module in json.loads(modules)]
    except (ValueError, TypeError, KeyError):
        raise ExtractorError(
            "modules.json must be a list of modules, each with its type: save the "
            "model with SentenceTransformer.save"
        ) from None
    if not all(name.startswith(OWN_CLASSES) for name in named):
        raise ExtractorError(
            "modules.json names a class of another package, whose code would be "
            "run: take a model of sentence-transformers' own classes"
        )
