"""A service that takes what `lethe model register network` sends, checked as the API does."""

import io
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray

from app.schemas.families.networks import NewNetwork
from app.uploads.rows import parse_inputs
from tests.uploads import parsed
from workers.cli.models import command as model


class Service:
    """Accepts a registration, and reports it as trained on the next request."""

    def __init__(self) -> None:
        self.manifest: dict[str, Any] = {}
        self.rows: dict[str, NDArray[Any]] = {}

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def register_model(self, manifest: dict[str, Any], data: bytes) -> None:
        wanted = NewNetwork.model_validate(manifest)
        parse = partial(
            parse_inputs,
            shape=wanted.input_shape,
            classes=len(wanted.classes),
            pixels=wanted.network.id == "res-unet",
            max_bytes=1 << 24,
        )
        parsed(data, parse)
        self.manifest = manifest
        with np.load(io.BytesIO(data)) as arrays:
            self.rows = {name: arrays[name] for name in arrays.files}

    def model(self, ref: str) -> dict[str, Any]:
        return {"state": "ready", "current_version": 1}

    def artifact(self, ref: str, number: int) -> bytes:
        from workers.training.networks.registry import network
        from workers.training.networks.weights import encode_weights, initial_weights

        wanted = self.manifest["network"]["id"], self.manifest["network"]["parameters"]
        return encode_weights(*wanted, initial_weights(network(*wanted), 0))

    def owners(self) -> dict[str, list[str]]:
        """Return the records of each client."""
        clients, records = self.rows["clients"], self.rows["records"]
        return {name: records[clients == name].tolist() for name in sorted(set(clients))}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    found = Service()
    monkeypatch.setattr("workers.cli.service.connect", lambda url: found)
    return found


def register(data: Path, *words: object) -> Result:
    arguments = ["register", "network", "--url", "http://x", "--ref", "m", data, *words]
    return CliRunner().invoke(model.model, [str(word) for word in arguments])


def said(result: Result) -> str:
    """Return the message that a refused command prints."""
    assert result.exit_code != 0, result.output
    return f"{result.output} {getattr(result.exception, 'detail', '')}"
