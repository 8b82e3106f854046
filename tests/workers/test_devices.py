"""The device of a process, and the warning if the requested one is unavailable."""

import ctypes
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import get_args

import pytest
import torch

from app.settings import Settings
from workers import devices, provenance
from workers.cli.worker import DEVICES
from workers.methods.ridge.statistics import backend, torch_backend
from workers.methods.ridge.statistics.backend import BackendError


@pytest.fixture(autouse=True)
def undisturbed() -> Iterator[None]:
    with backend.using(None):
        yield
    devices.choose("cpu")  # or what trains next in this process does so where a test chose


def test_torch_on_the_processor_is_used_and_named_in_certificates() -> None:
    plain = provenance.environment()
    assert "torch" not in plain
    chosen = devices.choose("torch-cpu")
    assert chosen is not None
    assert backend.current() is chosen
    named = {"device": "torch-cpu", "torch": torch.__version__}
    assert provenance.environment() == {**plain, **named}
    devices.choose("cpu")
    assert backend.current() is None
    assert provenance.environment() == plain


def test_no_cuda_is_a_warning_and_the_processor(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices.choose("cuda") is None
    assert backend.current() is None
    assert "no CUDA device: computing on the CPU" in caplog.text


def test_auto_without_a_driver_is_silent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(devices, "has_driver", lambda: False)
    assert devices.choose("auto") is None
    assert not caplog.records


@pytest.mark.parametrize("device", ["auto", "cuda", "torch-cpu"])
def test_torch_that_is_not_installed_is_a_warning_that_names_the_extra(
    device: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(devices, "has_driver", lambda: True)
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    assert devices.choose(device) is None
    assert "pip install -c constraints.txt '.[torch]'" in caplog.text


@pytest.mark.parametrize("error", [BackendError("planted"), RuntimeError("x"), OSError("x")])
def test_a_device_that_fails_its_self_test_is_not_used(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(device: object) -> None:
        raise error

    monkeypatch.setattr(torch_backend, "check_device", fail)
    assert devices.choose("torch-cpu") is None
    assert backend.current() is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_emulation_and_reduced_precision_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in backend.NO_EMULATION:
        monkeypatch.setenv(name, "1")
    torch.set_float32_matmul_precision("medium")
    devices.choose("torch-cpu")
    assert os.environ["CUBLAS_EMULATE_DOUBLE_PRECISION"] == "0"
    assert {os.environ[name] for name in backend.NO_EMULATION} == {"0"}
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cuda.matmul.allow_fp16_accumulation
    assert not torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction


def test_a_driver_is_looked_for_before_torch_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert not devices.has_driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert devices.has_driver()


def test_an_unknown_device_is_a_bug() -> None:
    with pytest.raises(ValueError, match="auto, cpu, cuda, torch-cpu"):
        devices.choose("tpu")


def test_the_settings_and_the_command_offer_the_same_devices() -> None:
    annotation = Settings.model_fields["device"].annotation
    assert get_args(annotation) == DEVICES == devices.DEVICES


def test_the_processor_alone_never_imports_torch() -> None:
    script = (
        "import sys; from workers import devices; from workers.methods.ridge.base import method_names; method_names();"
        "devices.has_driver = lambda: False;"
        "devices.choose('cpu'); devices.choose('auto'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
