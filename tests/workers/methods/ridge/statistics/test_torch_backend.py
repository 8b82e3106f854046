"""Sums through torch are those of BLAS, bit for bit; CUDA too wherever there is a device."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge.oracle import joined, only, python_gram, random_rows
from tests.workers.methods.ridge.statistics.test_gram import Case, cases, rows_of, same
from workers.arrays import Rows
from workers.errors import ExactnessError, InfeasibleRemovalError, RefusedError
from workers.methods.ridge.statistics import (
    backend,
    gram,
)
from workers.methods.ridge.statistics.backend import BackendError, using
from workers.methods.ridge.statistics.gram import RidgeStatistics, accumulate, add, subtract
from workers.methods.ridge.statistics.torch_backend import TorchBackend

KINDS = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
DEVICES = [TorchBackend(torch.device(kind)) for kind in KINDS]

each_device = pytest.mark.parametrize("device", DEVICES, ids=KINDS)


def summed(device: TorchBackend, rows: list[Rows], d: int, c: int) -> RidgeStatistics:
    return RidgeStatistics(*device.sums(rows, d, c, bits=16))


@each_device
@given(case=cases(), split=st.integers(1, 5), block_bytes=st.sampled_from([1, 200, 1 << 20]))
@settings(deadline=None)
def test_equals_sums_of_python_integers(
    device: TorchBackend, case: Case, split: int, block_bytes: int
) -> None:
    rows, d, c = case
    small = TorchBackend(device.device, block_bytes)
    got = summed(small, [only(rows, range(k, len(rows), split)) for k in range(split)], d, c)
    oracle_gram, moment = python_gram(rows.codes, rows.labels, c)
    assert got.gram.tolist() == oracle_gram
    assert got.moment.tolist() == moment
    assert got.rows == len(rows)


@each_device
def test_sums_over_blocks_beyond_2_to_53_lose_no_bit(device: TorchBackend) -> None:
    n = 9_000_001  # odd, and above 2^53 / q²: float64 alone must lose the last bit
    rows = Rows(np.full((n, 1), 32767, dtype=np.int16), np.zeros(n, dtype=np.int64))
    got = summed(TorchBackend(device.device, 1 << 22), [rows], 1, 1)
    assert int(got.gram[0, 0]) == n * 32767**2
    assert int(got.moment[0, 0]) == n * 32767


@each_device
@pytest.mark.parametrize("changed", [1, backend.WORTH_ROWS + 3])
def test_learning_and_forgetting_are_the_processors(device: TorchBackend, changed: int) -> None:
    rng = np.random.default_rng(changed)
    base, more = random_rows(rng, 400, 30, 5), random_rows(rng, changed, 30, 5)
    before = accumulate([base], 30, 5)
    after = accumulate([base, more], 30, 5)
    with using(device):
        assert same(accumulate([base, more], 30, 5), after)
        assert same(add(before, more), after)
        assert same(subtract(after, more), before)
    assert backend.current() is None


def test_the_device_is_asked_where_it_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    class Counting(TorchBackend):
        def sums(self, *args: object, **named: object) -> backend.Sums:
            calls.append(1)
            return super().sums(*args, **named)  # type: ignore[arg-type]

    rows = random_rows(np.random.default_rng(0), backend.WORTH_ROWS, 4, 2)
    with using(Counting(torch.device("cpu"))):
        whole = accumulate([rows], 4, 2)
        assert len(calls) == 1
        subtract(whole, only(rows, range(5)))
        assert len(calls) == 1
        add(whole, rows)
        assert len(calls) == 2


@each_device
@pytest.mark.parametrize(
    ("rows", "bits", "message"),
    [
        (rows_of([[1]], [0]), 16, "1 columns, the model 2"),
        (rows_of([[1, 2]], [2]), 16, r"outside 0\.\.1"),
        (rows_of([[-32768, 0]], [0]), 16, "exceeds 16 bits"),
        (rows_of([[0, 128]], [0]), 8, "exceeds 8 bits"),
    ],
    ids=["columns", "label", "code -2^15", "code of 8 bits"],
)
def test_odd_rows_are_refused(
    device: TorchBackend, rows: Rows, bits: int, message: str
) -> None:
    with using(device), pytest.raises(RefusedError, match=message):
        accumulate([rows], 2, 2, bits=bits)
    assert backend.current() is None


@each_device
def test_bounds_hold_on_the_device_too(
    device: TorchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = random_rows(np.random.default_rng(0), 300, 2, 2)
    with using(device):
        whole = accumulate([rows], 2, 2)
        with pytest.raises(InfeasibleRemovalError):
            subtract(whole, joined([rows, rows]))
        monkeypatch.setattr(gram, "INT_LIMIT", 299 * 32767**2)
        with pytest.raises(ExactnessError, match="overflow int64"):
            accumulate([rows], 2, 2)


def test_nothing_to_sum_is_nothing() -> None:
    with using(DEVICES[0]):
        assert same(
            accumulate([], 3, 2),
            RidgeStatistics(np.zeros((3, 3), int), np.zeros((3, 2), int), 0),
        )


class Failing(TorchBackend):
    """Runs out of memory at its first product."""

    def multiply(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("planted")


@pytest.fixture
def failing() -> Iterator[None]:
    with using(Failing(torch.device("cpu"))):
        yield


def test_a_device_that_fails_hands_over_to_the_processor(
    failing: None, caplog: pytest.LogCaptureFixture
) -> None:
    rows = random_rows(np.random.default_rng(0), 300, 4, 2)
    got = accumulate([rows], 4, 2)
    assert "OutOfMemoryError" in caplog.text
    assert backend.current() is None
    assert same(got, accumulate([rows], 4, 2))


def test_a_device_that_fails_on_an_iterator_says_so_and_is_given_up(failing: None) -> None:
    rows = random_rows(np.random.default_rng(0), 300, 4, 2)
    with pytest.raises(BackendError, match="CPU takes over"):
        accumulate(iter([rows]), 4, 2)
    assert backend.current() is None


def test_an_error_of_the_rows_is_not_the_devices(caplog: pytest.LogCaptureFixture) -> None:
    def blocks() -> Iterator[Rows]:
        raise RuntimeError("the database went away")
        yield

    with using(DEVICES[0]):
        with pytest.raises(RuntimeError, match="database"):
            accumulate(blocks(), 4, 2)
        assert backend.current() is DEVICES[0]
    assert not caplog.records
