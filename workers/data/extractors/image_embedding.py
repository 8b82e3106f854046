"""Images through a timm architecture (DINOv2 among them) with weights from a safetensors file.

timm provides the architecture and its preprocessing; the weights come from the file, and
nothing is downloaded. The digest includes the preprocessing as timm resolves it, so a timm
release that changes it is detected.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workers.data.extractors.base import (
    ExtractorError,
    Features,
    Inputs,
    Kind,
    Parameters,
    digest_of_files,
)
from workers.libraries import require

BATCH = 8


@dataclass(frozen=True, slots=True, eq=False)
class ImageEmbedding:
    """Reads uint8 images (n, height, width, 3) of any one size; returns float32 (n, d)."""

    model: Any
    transform: Any
    parameters: Parameters
    digest: str
    id: str = "timm"
    kind: Kind = "images"

    def extract(self, inputs: Inputs) -> Features:
        """Return features (n, d). Raises RefusedError unless inputs are RGB images."""
        from workers.data.extractors.inference import in_batches

        if inputs.ndim != 4 or inputs.shape[3] != 3 or inputs.dtype != np.uint8:
            raise ExtractorError("images must be uint8 of shape (n, height, width, 3)")
        width = int(self.parameters["dimension"])
        features = np.empty((len(inputs), width), dtype=np.float32)
        for start in range(0, len(inputs), BATCH):
            part = inputs[start : start + BATCH]
            prepared = np.stack([self._prepare(image) for image in part])
            features[start : start + BATCH] = in_batches(self.model, prepared, BATCH, width)
        return features

    def _prepare(self, image: Inputs) -> Features:
        from PIL import Image

        prepared: Features = self.transform(Image.fromarray(image)).numpy()
        return prepared


def load(path: Path, name: str) -> ImageEmbedding:
    """Return the extractor of timm's architecture `name` with the weights at `path`.

    `name` may carry timm's tag, as in vit_small_patch14_dinov2.lvd142m: it chooses the
    preprocessing. Raises ExtractorError if timm is missing or knows no such architecture, or
    the file does not hold exactly its weights (a classifier in it is ignored).
    """
    timm = require("timm", "vision")
    data = _read(path)
    try:
        # Any other form ("hf-hub:…") would download or read elsewhere.
        known = timm.is_model(name) and not {":", "/"} & set(name)
        model = timm.create_model(name, pretrained=False, num_classes=0) if known else None
    except (RuntimeError, ValueError):
        model = None
    if model is None:
        raise ExtractorError(
            "timm has no model of the name given: timm.list_models() lists them"
        )
    _fill(model, data)
    model.float().eval()
    config = timm.data.resolve_model_data_config(model)
    parameters = {
        "crop": f"{config['crop_mode']} {config['crop_pct']}",
        "dimension": str(_dimension(model, config["input_size"])),
        "interpolation": str(config["interpolation"]),
        "mean": _list(config["mean"]),
        "model": name,
        "size": _list(config["input_size"]),
        "std": _list(config["std"]),
    }
    transform = timm.data.create_transform(**config, is_training=False)
    digest = digest_of_files("timm", parameters, {"weights": data})
    return ImageEmbedding(model, transform, parameters, digest)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise ExtractorError("the weights are missing or unreadable: check the path") from None


def _fill(model: Any, data: bytes) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load as parse

    try:
        weights = parse(data)
    except SafetensorError:
        raise ExtractorError(
            "the weights are no safetensors file: pickles are not read"
        ) from None
    head = model.pretrained_cfg.get("classifier") or ()
    heads = tuple(f"{layer}." for layer in ((head,) if isinstance(head, str) else head))
    backbone = {key: value for key, value in weights.items() if not key.startswith(heads)}
    try:
        model.load_state_dict(backbone, strict=True)
    except RuntimeError:
        raise ExtractorError(
            "the weights are not those of this model: check its name"
        ) from None


def _dimension(model: Any, size: Any) -> int:
    import torch

    from workers.data.extractors.inference import frozen

    with frozen():
        return int(model(torch.zeros(1, *size)).shape[1])


def _list(values: Any) -> str:
    return ",".join(str(value) for value in values)
