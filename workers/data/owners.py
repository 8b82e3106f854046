"""Whose each row is: as the file says, or dealt to as many clients as are asked for."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.data.partition import dirichlet, iid, natural
from workers.errors import DatasetError


@dataclass(frozen=True, slots=True)
class Ownership:
    """Which rows count, and whose they are.

    deal: to so many clients, where the file names none; with alpha by Dirichlet over labels,
    without it at random. at_least, draw: of the clients that a file names, those with so many
    rows, and of these so many, drawn by the seed.
    """

    deal: int | None = None
    alpha: float | None = None
    at_least: int = 1
    draw: int | None = None
    seed: int = 0


AS_NAMED = Ownership()  # whose each row is by the data, all of them


def assign(
    found: NDArray[Any] | None, labels: NDArray[np.integer[Any]], wanted: Ownership
) -> tuple[NDArray[np.int64], NDArray[np.str_]]:
    """Return the numbers (m,) of the rows that count, ascending, and the client (m,) of each.

    found (n,): whose each row is, by the file, None if it does not say. labels (n,), or
    (n, h, w) masks.

    Raises:
        DatasetError: The file names clients and others were to be dealt, or it names none and
            nothing was to be dealt, or there are too few of either.
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
