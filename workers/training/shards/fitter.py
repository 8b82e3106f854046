"""The fitter of a model's shards: a recipe, a program, or anything that fits rows."""

from collections.abc import Sequence
from typing import Protocol

from workers.training.recipes.fit import FitRows


class Fitter(Protocol):
    """Makes the model file of a table of rows: a pure function of them.

    It has limits, and raises RefusedError if it declines or exceeds them; the message quotes
    no row.
    """

    @property
    def name(self) -> str:
        """The name in certificates."""

    def environment(self) -> dict[str, str]:
        """Return what must agree for equal bytes: versions, processor."""

    def fit(self, tables: Sequence[FitRows]) -> list[bytes]:
        """Return the model file of each table, also of one without rows."""

    def try_twice(self, tables: Sequence[FitRows]) -> list[bytes]:
        """Return the files if two runs agree on their bytes."""
