"""The check of a GPU finds one that computes otherwise, or otherwise each time."""

from collections.abc import Callable
from itertools import count

import pytest
import torch
from click.testing import CliRunner

from benchmarks import gpu_training
from benchmarks.gpu_training import main, measure, problems
from workers.data.digit_images import load_digit_images
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
