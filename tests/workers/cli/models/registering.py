"""Services that take what `lethe model register` sends, checked as the API does."""

import io
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from click.testing import CliRunner, Result

from app.schemas.families.networks import NewNetwork
from app.uploads.rows import parse_inputs
from tests.uploads import parsed
from workers.cli.models import command as model


class FittingService:
    """Accepts a registration as the API does, and fits the model here."""

    def __init__(self) -> None:
        self.manifest: dict[str, Any] = {}
        self.rows: dict[str, Any] = {}
        self.file = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def register_model(self, manifest: dict[str, Any], data: bytes) -> None:
        with np.load(io.BytesIO(data)) as arrays:
            rows = {name: arrays[name] for name in arrays.files}
        self.file = self.fitted(manifest, data, rows)
        self.manifest, self.rows = manifest, rows

    def fitted(self, manifest: dict[str, Any], data: bytes, rows: dict[str, Any]) -> bytes:
        """Check what was sent; return the model's file."""
        raise NotImplementedError

    def model(self, ref: str) -> dict[str, Any]:
        return {"state": "ready", "current_version": 1}

    def artifact(self, ref: str, number: int) -> bytes:
        return self.file


class Service(FittingService):
    """Accepts a network, and reports it as trained on the next request."""

    def fitted(self, manifest: dict[str, Any], data: bytes, rows: dict[str, Any]) -> bytes:
        from workers.training.networks.registry import network
        from workers.training.networks.weights import encode_weights, initial_weights

        wanted = NewNetwork.model_validate(manifest)
        parse = partial(
            parse_inputs,
            shape=wanted.input_shape,
            classes=len(wanted.classes),
            pixels=wanted.network.id == "res-unet",
            max_bytes=1 << 24,
        )
        parsed(data, parse)
        named = manifest["network"]["id"], manifest["network"]["parameters"]
        return encode_weights(*named, initial_weights(network(*named), 0))

    def owners(self) -> dict[str, list[str]]:
        """Return the records of each client."""
        clients, records = self.rows["clients"], self.rows["records"]
        return {name: records[clients == name].tolist() for name in sorted(set(clients))}


def register(data: Path, *words: object) -> Result:
    arguments = ["register", "network", "--url", "http://x", "--ref", "m", data, *words]
    return CliRunner().invoke(model.model, [str(word) for word in arguments])


def said(result: Result) -> str:
    """Return the message that a refused command prints."""
    assert result.exit_code != 0, result.output
    return f"{result.output} {getattr(result.exception, 'detail', '')}"
