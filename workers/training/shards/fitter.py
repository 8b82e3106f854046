"""What fits the shards of a model: a recipe, or whatever else makes a file of rows."""

from collections.abc import Sequence
from typing import Protocol

from workers.training.recipes.fit import FitRows


class Fitter(Protocol):
    """Makes the model file of a table of rows: a pure function of them, and what it needs.

    It has its limits, and raises RefusedError where it declines or exceeds them; the message
    quotes no row.
    """

    @property
    def name(self) -> str:
        """What certificates call it."""

    def environment(self) -> dict[str, str]:
        """Return what equal bytes need to agree on: versions, processor."""

    def fit(self, tables: Sequence[FitRows]) -> list[bytes]:
        """Return the model file of each table, also of one without rows."""

    def try_twice(self, tables: Sequence[FitRows]) -> list[bytes]:
        """Return the files, once two runs agreed on their bytes."""
