"""Split labelled rows over clients that see different mixtures of labels.

Source: label skew by a Dirichlet distribution, Hsu, Qi and Brown, "Measuring the Effects
of Non-Identical Data Distribution for Federated Visual Classification", 2019, section 3.
"""

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
        raise DatasetError(f"{clients} clients for {len(labels)} rows: at least one row each")
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


def _fill_empty(owner: NDArray[np.int64], clients: int) -> None:
    """Give each empty client, in order, one row of whoever then has most."""
    sizes = np.bincount(owner, minlength=clients)
    for client in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        owner[np.flatnonzero(owner == largest)[0]] = client
        sizes[largest] -= 1
        sizes[client] += 1
