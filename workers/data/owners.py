"""The owner of each row: from the file, or dealt to a number of clients."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.data.partition import dirichlet, iid, natural
from workers.errors import DatasetError


@dataclass(frozen=True, slots=True)
class Ownership:
    """Which rows to use, and their owners.

    deal: the number of clients to deal rows to, if the file names none; with alpha by a
    Dirichlet distribution over labels, without it at random. at_least: keep only named
    clients with this many rows; draw: sample this many of them by the seed.
    """

    deal: int | None = None
    alpha: float | None = None
    at_least: int = 1
    draw: int | None = None
    seed: int = 0


AS_NAMED = Ownership()  # all rows, with the owners in the data


def assign(
    found: NDArray[Any] | None, labels: NDArray[np.integer[Any]], wanted: Ownership
) -> tuple[NDArray[np.int64], NDArray[np.str_]]:
    """Return the positions (m,) of the rows to use, ascending, and their clients (m,).

    found (n,): the owners in the file, None if it names none. labels (n,), or (n, h, w)
    masks. Raises DatasetError if the file names clients and `deal` is set, if it names none
    and `deal` is not set, or if there are too few rows or clients.
    """
    if wanted.alpha is not None and wanted.deal is None:
        raise DatasetError("alpha says how rows are dealt: name how many clients with --deal")
    if found is not None:
        if wanted.deal is not None:
            raise DatasetError("the data say whose each row is: leave --deal out")
        if found.shape != (len(labels),) or found.dtype.kind not in "iuU":
            raise DatasetError("clients: must be one integer or string for each row")
        numbers = natural(
            found, at_least=wanted.at_least, clients=wanted.draw, seed=wanted.seed
        )
        rows = np.flatnonzero(numbers >= 0)
        return rows, found[rows].astype(np.str_)
    if wanted.deal is None:
        raise DatasetError(
            "the data do not say whose each row is: deal them with --deal, or write them as "
            "an .npz with clients"
        )
    if wanted.at_least > 1 or wanted.draw is not None:
        raise DatasetError(
            "--at-least and --draw choose among the clients that data name: leave them out "
            "with --deal"
        )
    if wanted.alpha is None:
        owners = iid(len(labels), wanted.deal, wanted.seed)
    elif labels.ndim == 1:
        owners = dirichlet(labels.astype(np.int64), wanted.deal, wanted.alpha, wanted.seed)
    else:
        raise DatasetError("masks have no label for each image to skew by: leave --alpha out")
    return np.arange(len(labels)), dealt_names(owners)


def dealt_names(owners: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return the names (n,) of clients that rows were dealt to, such as client-00."""
    return np.array([f"client-{owner:02d}" for owner in owners.tolist()])
