"""Features as 6-bit codes; the bins are declared or computed from rows.

Bins are part of the model. A bin edge chosen from a row that is erased later would leave a
trace of it: so edges are declared, computed from rows that the caller says are public, or
recomputed whenever one of their rows is erased.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.forest.tree import MAX_CODES, Codes

MISSING = 0  # the code of NaN
MAX_EDGES = MAX_CODES - 2  # besides NaN's code there is one more code than edges
# Default edges: spaced by 0.25 near 0, by a quarter of the value far from it, to about 1,000.
DEFAULT_EDGES = np.sinh(np.linspace(-7.6, 7.6, MAX_EDGES))

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Bins:
    """edges: for each feature at most 62 finite numbers, ascending.

    A value has the code 1 + the number of edges below it. `missing`: NaN has the code 0 and so
    a bin of its own; otherwise it is refused. Infinity is always refused. Raises
    EstimatorInputError: the edges do not have this form.
    """

    edges: tuple[Floats, ...]
    missing: bool = False

    def __post_init__(self) -> None:
        if not self.edges:
            raise EstimatorInputError("edges: give them for at least one feature")
        for j, own in enumerate(self.edges):
            if own.ndim != 1 or len(own) > MAX_EDGES:
                raise EstimatorInputError(
                    f"edges: those of feature {j} must be a list of at most {MAX_EDGES} numbers"
                )
            if not np.isfinite(own).all() or (np.diff(own) <= 0).any():
                raise EstimatorInputError(
                    f"edges: those of feature {j} must be finite and ascend"
                )

    @classmethod
    def declared(cls, edges: Sequence[Sequence[float]], *, missing: bool = False) -> "Bins":
        """Return the bins with these edges. Raises EstimatorInputError."""
        return cls(tuple(np.array(own, np.float64) for own in edges), missing)

    @classmethod
    def of_public_rows(cls, rows: Floats, *, missing: bool = False) -> "Bins":
        """Return bins at quantiles of rows (n, features) that are never erased.

        A feature with at most 63 values gets an edge between each two of them. Raises
        EstimatorInputError: there is no row, or a value is infinite.
        """
        if rows.ndim != 2 or 0 in rows.shape:
            raise EstimatorInputError("public rows: give at least one, of at least one feature")
        if np.isinf(rows).any() or (not missing and np.isnan(rows).any()):
            raise EstimatorInputError("public rows: NaN or infinity: repair or drop the rows")
        return cls(tuple(_quantiles(column) for column in rows.T), missing)

    @classmethod
    def of_rows(
        cls, rows: Floats, otherwise: Sequence[Sequence[float]], *, missing: bool = False
    ) -> "Bins":
        """Return bins at quantiles of rows (n, features) that may be erased.

        The result does not depend on the order of the rows; there may be none. otherwise: the
        edges of a feature of which no row has a value. Raises EstimatorInputError: another
        number of features, or invalid edges.
        """
        if rows.ndim != 2 or rows.shape[1] != len(otherwise):
            raise EstimatorInputError(
                f"rows must have {len(otherwise)} features, as the bins have"
            )
        edges = [
            np.array(own, np.float64) if np.isnan(column).all() else _quantiles(column)
            for column, own in zip(rows.T, otherwise, strict=True)
        ]
        return cls(tuple(edges), missing)

    @property
    def widest(self) -> NDArray[np.int32]:
        """The lowest and the highest code of each feature, (features, 2)."""
        low = MISSING if self.missing else MISSING + 1
        return np.array([[low, len(own) + 1] for own in self.edges], np.int32)

    def codes(self, features: Floats) -> Codes:
        """Return the codes (n, features) of float64 features.

        Raises EstimatorInputError: another number of features, infinity, or NaN without a bin.
        """
        if features.ndim != 2 or features.shape[1] != len(self.edges):
            raise EstimatorInputError(
                f"rows must have {len(self.edges)} features, as the bins have"
            )
        empty = np.isnan(features)
        for j in range(len(self.edges)):
            if np.isinf(features[:, j]).any():
                raise EstimatorInputError(f"feature {j} holds infinity: repair the rows")
            if not self.missing and empty[:, j].any():
                raise EstimatorInputError(
                    f"feature {j} holds NaN: repair or drop the rows, or give NaN a bin "
                    "(missing='bin')"
                )
        codes = np.empty(features.shape, np.uint8)
        for j, own in enumerate(self.edges):
            codes[:, j] = 1 + np.searchsorted(own, features[:, j], side="left")
        codes[empty] = MISSING
        return codes


def _quantiles(column: Floats) -> Floats:
    # -0.0 becomes 0.0: they are equal, so the order of rows would decide which is an edge.
    known = np.sort(column[~np.isnan(column)] + 0.0)
    values = np.unique(known)
    if len(values) <= MAX_EDGES + 1:
        middles = values[:-1] / 2 + values[1:] / 2
        return np.unique(middles[np.isfinite(middles)])
    at = np.arange(1, MAX_EDGES + 1) * len(known) // (MAX_EDGES + 1)
    edges = np.unique(known[at])
    return edges[edges < known[-1]]  # no value is above the largest
