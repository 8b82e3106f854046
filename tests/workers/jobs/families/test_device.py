"""A worker that sums on a device makes the same heads, and its certificate names the device."""

from collections.abc import Iterator

import pytest
import torch

from app.settings import Settings
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.statement import Predicate, parse_statement
from tests.installation import Installation
from workers import devices
from workers.methods.ridge.statistics import backend
from workers.methods.ridge.statistics.torch_backend import TorchBackend


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count uses of a device; the processor is restored at the end."""
    asked: list[int] = []
    sums = TorchBackend.sums

    def counting(self: TorchBackend, *args: object, **named: object) -> backend.Sums:
        asked.append(1)
        return sums(self, *args, **named)  # type: ignore[arg-type]

    with backend.using(None):
        devices.choose("torch-cpu")
        monkeypatch.setattr(TorchBackend, "sums", counting)
        yield asked


def erased(installation: Installation, record: str) -> Predicate:
    accepted = installation.caller.erase_records(record)
    installation.drain()
    shown = installation.caller.http.get(f"/v1/requests/{accepted.json()['id']}").json()
    bundle = installation.caller.http.get(shown["certificate"]).content
    return parse_statement(parse_bundle(bundle).dsse_envelope.payload).predicate


def test_the_device_is_in_the_certificate_and_not_in_the_head(
    installation: Installation, counted: list[int]
) -> None:
    installation.ready()
    assert counted, "the fit did not use the device"
    on_device = erased(installation, "r0")
    assert on_device.result == "PASS"
    environment = on_device.method.environment
    assert environment["device"] == "torch-cpu"
    assert environment["torch"] == torch.__version__
    asked = len(counted)
    backend.use(None)
    on_processor = erased(installation, "r1")
    assert len(counted) == asked
    assert "device" not in on_processor.method.environment
    # The verifier, which uses no device, accepted both: the statistics are bit-equal.
    assert on_processor.result == "PASS"
    assert on_processor.model.version_before == on_device.model.version_after


def test_the_default_device_is_chosen_automatically() -> None:
    assert Settings().device == "auto"
