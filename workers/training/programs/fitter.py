"""A program as the fitter of a model's shards (`workers.training.shards.container`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workers.training.programs import run
from workers.training.programs.program import Program
from workers.training.recipes.fit import FitRows
from workers.training.recipes.process import Limits


@dataclass(frozen=True, slots=True)
class ProgramFitter:
    """A program whose runs write equal bytes. config: the model's, as registered.

    limits: for each run. A shard without rows has an empty file, and the program is not run.
    """

    config: Mapping[str, Any]
    limits: Limits

    @property
    def name(self) -> str:
        """The file to run."""
        return Program.parse(self.config).entry

    def environment(self) -> dict[str, str]:
        """Return what must agree for equal bytes."""
        return run.environment(self.config)

    def fit(self, tables: Sequence[FitRows]) -> list[bytes]:
        """Return the model file of each table. Raises RefusedError."""
        return self._each(run.execute, tables)

    def try_twice(self, tables: Sequence[FitRows]) -> list[bytes]:
        """Return the files if two runs agree on their bytes. Raises RefusedError."""
        return self._each(run.execute_twice, tables)

    def _each(
        self,
        execute: Callable[[Mapping[str, Any], FitRows, Limits], bytes],
        tables: Sequence[FitRows],
    ) -> list[bytes]:
        return [execute(self.config, one, self.limits) if len(one) else b"" for one in tables]
