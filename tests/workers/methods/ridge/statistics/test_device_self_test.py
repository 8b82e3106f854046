"""The self-test notices arithmetic that is not float64: each case is a planted device."""

from collections.abc import Callable

import pytest
import torch

from workers.methods.ridge.statistics.backend import BackendError
from workers.methods.ridge.statistics.torch_backend import (
    TorchBackend,
    check_device,
    self_test_products,
)

CPU = torch.device("cpu")


def fixed_point(bits: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """float64 emulated as cuBLAS does: rows and columns scaled, and cut to some bits."""

    def cut(matrix: torch.Tensor, dim: int) -> torch.Tensor:
        _, exponent = torch.frexp(matrix.abs().amax(dim, keepdim=True))
        unit = torch.ldexp(torch.ones_like(exponent, dtype=torch.float64), exponent - bits)
        return torch.trunc(matrix / unit) * unit

    return lambda left, right: cut(left, 1) @ cut(right, 0)


def mantissa(bits: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Every factor rounded to some bits of mantissa, as the tensor cores take them."""

    def cut(matrix: torch.Tensor) -> torch.Tensor:
        fraction, exponent = torch.frexp(matrix)
        return torch.ldexp(torch.round(fraction * 2**bits) / 2**bits, exponent)

    return lambda left, right: cut(left) @ cut(right)


def in_float32(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return (left.float() @ right.float()).double()


def summed_in_float32(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    half = left.shape[1] // 2
    first, second = left[:, :half] @ right[:half], left[:, half:] @ right[half:]
    return (first.float() + second.float()).double()


def one_unit_off(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    product = left @ right
    product[-1, -1] += 1
    return product


PLANTED = {
    "float32": in_float32,
    "float32 sums": summed_in_float32,
    "TF32": mantissa(11),
    "bfloat16": mantissa(8),
    "float64 of 52 bits": mantissa(52),
    **{f"emulation of {bits} bits": fixed_point(bits) for bits in (16, 24, 32, 40, 48, 52)},
    "one entry": one_unit_off,
}


@pytest.mark.parametrize("name", PLANTED)
def test_inexact_arithmetic_is_noticed(name: str) -> None:
    class Planted(TorchBackend):
        def multiply(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return PLANTED[name](left, right)

    with pytest.raises(BackendError, match="self-test"):
        check_device(Planted(CPU))


def test_statistics_are_checked_even_if_products_are_right() -> None:
    class Planted(TorchBackend):
        def sums(self, *args: object, **named: object):  # type: ignore[no-untyped-def]
            gram, moment, count = super().sums(*args, **named)  # type: ignore[arg-type]
            moment[-1, -1] += 1
            return gram, moment, count

    with pytest.raises(BackendError, match="statistics of 1 columns"):
        check_device(Planted(CPU))


def test_float64_passes() -> None:
    check_device(TorchBackend(CPU))


def test_no_partial_sum_of_the_products_can_be_inexact() -> None:
    for name, left, right in self_test_products():
        assert int((abs(left).astype(object) @ abs(right).astype(object)).max()) < 2**53, name
