"""The verifier's test of statistics without rows, made before they are learned.

A message that no rows can have may still be close enough to a possible one to pass the tests of
`workers.methods.ridge.statistics`, which allow for rounding. The verifier evaluates exactly and
would refute the model that learned it, because of one client's lie. So its own criterion is
applied before anything is changed.
"""

from workers.errors import RefusedError
from workers.judge.ridge.posterior import least_eigenvalue
from workers.judge.ridge.statistics import UnusableRowsError
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.statistics.gram import RidgeStatistics


class IndefiniteError(RefusedError):
    """Statistics with a direction in which rows would need negative weight."""


def check_definite(statistics: RidgeStatistics, config: RidgeConfig) -> None:
    """Check that the verifier finds G, exact and not sketched, positive semidefinite.

    Raises IndefiniteError if it does not, or cannot tell.
    """
    try:
        _, refuted = least_eigenvalue(statistics.gram, config.exponents)
    except UnusableRowsError:
        refuted = True
    if refuted:
        raise IndefiniteError(
            "no rows have these statistics: their Gram matrix is not positive semidefinite; "
            "summarise the rows again"
        )
