"""What is fuzzed: a parser, valid inputs of it, and how it may refuse others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.fuzz.mutate import Mutator, plain

Read = Callable[[bytes], object]


class Way(str):
    """What a reader that never refuses returns: how it took the input, for the corpus."""


@dataclass(frozen=True)
class Target:
    """A parser of bytes. seeds: returns valid inputs. refusals: what it documents to raise.

    read takes bytes whatever the parser takes: text is decoded as whoever calls it does.
    mutators: what knows the format, beside changes of plain bytes. slow_s: more for one input
    is a finding. needs: a program without which the target is left out.
    """

    name: str
    read: Read
    seeds: Callable[[], Sequence[bytes]]
    refusals: tuple[type[BaseException], ...]
    mutators: tuple[Mutator, ...] = (plain,)
    slow_s: float = 5.0
    needs: str = ""


def text(read: Callable[[str], object], *, strict: bool = True) -> Read:
    """Return a reader of bytes as UTF-8, of which others are refused before it is called."""

    def of_bytes(data: bytes) -> object:
        return read(data.decode("utf-8", "strict" if strict else "replace"))

    return of_bytes
