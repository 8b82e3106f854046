"""The check of a GPU finds one that computes otherwise, or otherwise each time."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from benchmarks import gpu_steps, gpu_training
from benchmarks.gpu_training import main, measure, problems
from workers.data.digits import load_digit_images
from workers.training.fedavg.client.flops import training_flops
from workers.training.networks.registry import network
from workers.training.networks.weights import Weights

CPU = torch.device("cpu")
Change = Callable[[Weights], Weights]


def by(factor: Callable[[], float]) -> Change:
    return lambda weights: {name: part * factor() for name, part in weights.items()}


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], list[str]]:
    """What is found on a device that changes what the processor computes."""
    monkeypatch.setattr(gpu_training, "METHODS", ())
    plain = gpu_training.trained

    def found(change: Change) -> list[str]:
        double = torch.device("meta")
        monkeypatch.setattr(
            gpu_training,
            "trained",
            lambda federated, on: (
                change(plain(federated, CPU)) if on == double else plain(federated, CPU)
            ),
        )
        return problems(measure(load_digit_images(), 1, double))

    return found


def test_a_device_that_computes_rightly_passes(lines: Callable[[Change], list[str]]) -> None:
    assert lines(by(lambda: 1.0)) == []


def test_other_bits_each_time_are_found(lines: Callable[[Change], list[str]]) -> None:
    numbers = count()
    assert lines(by(lambda: 1 + 1e-6 * next(numbers))) == ["training: other bits each time"]


def test_another_accuracy_is_found(lines: Callable[[Change], list[str]]) -> None:
    (found,) = lines(by(lambda: -1.0))
    assert found.startswith("training: accuracy")


def test_a_missing_gpu_is_named() -> None:
    done = CliRunner().invoke(main, [])
    assert done.exit_code == 1
    assert "no CUDA device" in done.output


@pytest.mark.parametrize("fit", [True, False])
def test_the_record_says_what_was_measured_and_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, fit: bool
) -> None:
    monkeypatch.setattr(gpu_training, "METHODS", ("retrain",))
    if not fit:
        monkeypatch.setattr(gpu_training, "POINTS", -1.0)  # no accuracy is near enough
    file = tmp_path / "training.json"
    asked = ["--device", "cpu", "--rounds", "1", "--json", str(file)]
    result = CliRunner().invoke(main, asked)
    record = json.loads(file.read_text())
    assert (result.exit_code == 0, not record["problems"]) == (fit, fit), result.output
    assert record["rounds"] == 1
    assert record["environment"]["device"] == "torch-cpu"
    assert record["environment"]["torch"] == torch.__version__
    assert record["lines"].keys() == {"training", "retrain"}
    for name, line in record["lines"].items():
        assert line["equal_bits"], name
        assert line["equal_to_cpu"], name
        assert line["seconds"] > 0, name
        assert f"{name:12} equal bits True" in result.output


def test_steps_are_timed_and_their_operations_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_steps, "LISTED", gpu_steps.LISTED[:2])  # the others take minutes
    file = tmp_path / "steps.json"
    asked = ["--device", "cpu", "--short", "--processes", "", "--json", str(file)]
    result = CliRunner().invoke(gpu_steps.main, asked)
    assert result.exit_code == 0, result.output
    record = json.loads(file.read_text())
    assert record["machine"]["device"] == "cpu"
    assert [step["processes"] for step in record["steps"]] == [1, 1]
    made = network("simple-cnn", dict(gpu_steps.COLOUR))
    for step in record["steps"]:
        assert step["milliseconds"] > 0
        if step["network"] == "simple-cnn" and step["channels"] == 3:
            done = 64 * training_flops(made)
            assert step["operations"] * step["milliseconds"] / 1000 == pytest.approx(
                done, rel=2e-3
            )
