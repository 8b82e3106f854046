"""Split rows over clients: at random, with skewed labels, or as they were collected.

Source: label skew by a Dirichlet distribution, Hsu, Qi and Brown, "Measuring the Effects
of Non-Identical Data Distribution for Federated Visual Classification", 2019, section 3.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Labels
from workers.errors import DatasetError


def dirichlet(labels: Labels, clients: int, alpha: float, seed: int) -> NDArray[np.int64]:
    """Return the client (n,) of each row, 0..clients-1, none of them empty.

    Each label's rows are dealt in proportions drawn from Dir(alpha): small alpha, strong
    skew. The same arguments give the same partition.
    Raises DatasetError for more clients than rows, or alpha not positive.
    """
    if not 1 <= clients <= len(labels):
        raise DatasetError(
            f"{clients} clients for {len(labels)} rows: deal to 1 to {len(labels)} "
            "clients, at least one row each"
        )
    if not 0 < alpha < float("inf"):
        raise DatasetError("alpha must be a positive number: 0.5 is a strong skew")
    rng = np.random.Generator(np.random.PCG64(seed))
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = np.cumsum(rng.dirichlet(np.full(clients, alpha)))
        # The last cut is len(rows) whatever the sum of shares rounds to.
        cuts = np.rint(shares[:-1] * len(rows)).astype(np.int64)
        for client, part in enumerate(np.split(rows, cuts)):
            owner[part] = client
    _fill_empty(owner, clients)
    return owner


def iid(rows: int, clients: int, seed: int) -> NDArray[np.int64]:
    """Return the client (n,) of each of n rows, 0..clients-1, dealt at random.

    The clients' numbers of rows differ by at most one. The same arguments give the same
    partition. Raises DatasetError for more clients than rows.
    """
    if not 1 <= clients <= rows:
        raise DatasetError(
            f"{clients} clients for {rows} rows: deal to 1 to {rows} clients, at "
            "least one row each"
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    return rng.permutation(np.arange(rows, dtype=np.int64) % clients)


def natural(
    owners: NDArray[Any], *, at_least: int = 1, clients: int | None = None, seed: int = 0
) -> NDArray[np.int64]:
    """Return the client (n,) of each row by its owner, or -1 for dropped rows.

    Owners with fewer than `at_least` rows are dropped; of the others `clients` are drawn by
    `seed`, None: all are kept. Clients are numbered from 0 in the order of their names.
    Raises DatasetError if no owner is left, or fewer than `clients`.
    """
    if owners.ndim != 1:
        raise DatasetError("owners: must be one name for each row")
    names, index, sizes = np.unique(owners, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(sizes >= at_least)
    if not len(kept) or (clients is not None and not 1 <= clients <= len(kept)):
        raise DatasetError(
            f"only {len(kept)} clients have {at_least} rows or more: lower --at-least or --draw"
        )
    if clients is not None:
        rng = np.random.Generator(np.random.PCG64(seed))
        kept = np.sort(rng.choice(kept, size=clients, replace=False))
    numbers = np.full(len(names), -1, dtype=np.int64)
    numbers[kept] = np.arange(len(kept))
    return numbers[index]


def _fill_empty(owner: NDArray[np.int64], clients: int) -> None:
    """Give each empty client, in order, one row of the then largest client."""
    sizes = np.bincount(owner, minlength=clients)
    for client in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        owner[np.flatnonzero(owner == largest)[0]] = client
        sizes[largest] -= 1
        sizes[client] += 1
