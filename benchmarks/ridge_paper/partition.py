"""Who holds which rows."""

import numpy as np
from numpy.typing import NDArray


def members(owners: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the positions of each client's rows, for the clients that have any."""
    order = np.argsort(owners, kind="stable")
    cuts = np.flatnonzero(np.diff(owners[order])) + 1
    return np.split(order, cuts)
