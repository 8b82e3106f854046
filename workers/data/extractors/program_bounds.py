"""A program's cost, found by running it on tensors that have shapes but no memory.

torch's fake tensors compute every shape as the real operators would. So a program that cannot
run, or that would need more than the bounds below, is refused before any memory is touched.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from workers.data.extractors.base import ExtractorError
from workers.data.extractors.operators import DTYPES

MAX_ELEMENTS = 1 << 28  # of one tensor, views included: an expanded one may be copied
MAX_LIVE = 1 << 31  # bytes of all tensors at once, without the weights
MAX_WRITTEN = 1 << 37  # elements of all tensors computed for a batch
MAX_WORK = 2 * 10**13  # floating-point operations of products, convolutions and windows


class Bounds(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts every call down to the kernels, as `FlopCounterMode` does."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._written = self._work = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch would import its compiler, for seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Call an operator or its parts; raise ExtractorError beyond a bound."""
        named = kwargs or {}
        counted = flop_registry.get(func._overloadpacket)
        if counted is None and func.namespace == "aten":  # prim asks for a tensor's device
            with self:
                found = func.decompose(*args, **named)
            if found is not NotImplemented:
                return found
        found = func(*args, **named)
        tensors = list(_tensors([found]))
        sizes = [tensor.numel() for tensor in tensors]
        if max(sizes, default=0) > MAX_ELEMENTS:
            raise ExtractorError(
                f"a tensor of the program has more than {MAX_ELEMENTS} elements: export "
                "a smaller module"
            )
        if counted is not None:
            self._work += counted(*args, **named, out_val=found)
        if "pool" in func._overloadpacket.__name__ and len(args) > 1:
            self._work += sum(sizes) * prod(_whole(args[1]))
        self._written += sum(sizes)
        if self._written > MAX_WRITTEN or self._work > MAX_WORK:
            raise ExtractorError(
                "the program takes more work than an extractor may for one batch: "
                "export a smaller module"
            )
        return found


@contextmanager
def shapes_only(
    constants: Mapping[str, torch.Tensor],
) -> Iterator[tuple[dict[str, torch.Tensor], Callable[[tuple[int, ...]], torch.Tensor]]]:
    """Yield the constants without their memory, and a function that makes an input.

    In the block every operator only computes shapes, within the bounds. Contradictory shapes
    raise torch's errors.
    """
    fake = FakeTensorMode()
    with fake, torch.no_grad():
        named: dict[str, torch.Tensor] = {
            name: fake.from_tensor(tensor) for name, tensor in constants.items()
        }
        with Bounds():
            yield named, lambda shape: torch.zeros(shape)


def check_live(tensors: Iterable[Any], constants: frozenset[int]) -> None:
    """Raise ExtractorError if tensors hold more than is allowed at once, or another type."""
    held: dict[int, int] = {}
    for tensor in _tensors(tensors):
        if tensor.dtype not in DTYPES.values():
            raise ExtractorError("the program leaves float32: export the module in float32")
        storage = tensor.untyped_storage()
        if storage._cdata not in constants:
            held[storage._cdata] = storage.nbytes()
    if sum(held.values()) > MAX_LIVE:
        raise ExtractorError(
            f"the program needs more than {MAX_LIVE} bytes at once: export a smaller module"
        )


def storages(tensors: Iterable[torch.Tensor]) -> frozenset[int]:
    """Return the identities of the tensors' memory."""
    return frozenset(tensor.untyped_storage()._cdata for tensor in tensors)


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _whole(value: Any) -> list[int]:
    return [one for one in (value if isinstance(value, list) else [value]) if type(one) is int]
