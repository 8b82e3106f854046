"""Where a job's rounds are computed: the certificate, the verifier and the engine agree."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from app.settings import Settings
from tests.workers.training.fedavg.small import CLIENTS
from workers import devices
from workers.families.network.training import device_of
from workers.methods.ridge.statistics.backend import Backend, BackendError
from workers.silos.engine import SiloEngine, engine_for
from workers.training.fedavg import device
from workers.training.fedavg.in_process import InProcess


def installation(silos: int) -> Any:
    return SimpleNamespace(settings=Settings(silos=silos))


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A GPU that passed its self-test, and that nothing here is computed on."""

    def missing(kind: str) -> Backend:
        raise BackendError(f"no sums on {kind}")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(device, "check_once", lambda found: None)
    monkeypatch.setattr(devices, "open_device", missing)
    yield
    devices.choose("cpu")


@pytest.mark.parametrize("told", ["auto", "cpu", "cuda", "torch-cpu"])
@pytest.mark.usefixtures("with_gpu")
def test_a_worker_trains_where_its_verifier_repeats(told: str) -> None:
    devices.choose(told)
    services = installation(silos=0)
    engine = engine_for(services, "job", 1, CLIENTS, {})
    assert isinstance(engine, InProcess)
    assert engine.device == device_of(services)
    assert engine.device.type == ("cuda" if told in ("auto", "cuda") else "cpu")


@pytest.mark.usefixtures("with_gpu")
def test_silos_compute_on_processors_whatever_the_worker_has() -> None:
    devices.choose("cuda")
    services = installation(silos=2)
    engine = engine_for(services, "job", 1, CLIENTS, {})
    assert isinstance(engine, SiloEngine)
    assert engine.environment["device"] == device_of(services).type == "cpu"
