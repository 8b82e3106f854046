"""One classification task on frozen features: what every table and figure is measured on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Labels, Matrix, Rows
from workers.data.partition import dirichlet
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.statistics.quantiser import Features, calibrate

# Fixed before any data was seen, and never tuned: a penalty that was chosen on rows that
# are erased later would remember them.
PENALTY = 1.0
SKEW = 0.5  # of the Dirichlet partition, where a data set has no clients of its own


@dataclass(frozen=True, eq=False)
class HeadTask:
    """Rows to learn and to test on, and whose they are.

    features (n, d) and test (m, d) float64 are what the backbone gave, and what every float
    method is trained on; rows are the same training rows quantised, for the exact ledger.
    natural (n,) counts the data set's own clients from 0, or is None. saturated codes were
    clipped.
    """

    name: str
    about: str
    rows: Rows
    config: RidgeConfig
    features: Matrix
    test: Matrix
    test_labels: Labels
    natural: NDArray[np.int64] | None
    saturated: int

    @cached_property
    def quantised(self) -> Matrix:
        """The training rows (n, d) float64, codes times steps: exact."""
        return dequantise(self.rows, self.config)

    @cached_property
    def targets(self) -> Matrix:
        """The one-hot labels (n, c) float64."""
        return np.eye(self.config.classes)[self.rows.labels]

    def owners(self, clients: int, seed: int = 0) -> NDArray[np.int64]:
        """Return the client (n,) of each row, 0..clients-1.

        Natural clients stay whole: several of them make one, as the ridge paper deals
        writers to its clients in table 4. Without them labels are dealt by Dir(SKEW).
        """
        if self.natural is None:
            return dirichlet(self.rows.labels, clients, SKEW, seed)
        groups = int(self.natural.max()) + 1
        rng = np.random.Generator(np.random.PCG64(seed))
        place = np.empty(groups, dtype=np.int64)
        place[rng.permutation(groups)] = np.arange(groups) % clients
        owners: NDArray[np.int64] = place[self.natural]
        return owners

    def client_counts(self, quick: bool) -> tuple[int, int, int]:
        """Return the three numbers of clients of table 4."""
        if quick:
            return 5, 20, 100
        many = 500 if self.natural is None else int(self.natural.max()) + 1
        return 10, 100, many

    def some(self, index: NDArray[np.int64]) -> Rows:
        """Return the training rows at these positions."""
        return Rows(self.rows.codes[index], self.rows.labels[index])

    def stream(self, length: int, seed: int = 1) -> NDArray[np.int64]:
        """Return the positions (length,) of records to delete, in order, each once."""
        rng = np.random.Generator(np.random.PCG64(seed))
        return rng.permutation(len(self.rows))[:length]

    def accuracy(self, head: Matrix) -> float:
        """Return the share of test rows whose highest score is their label."""
        return share(self.test, self.test_labels, head)


def share(features: Matrix, labels: Labels, head: Matrix) -> float:
    """Return the share of rows (n, d) whose highest score under head (d, c) is their label."""
    return float((np.argmax(features @ head, axis=1) == labels).mean())


def dequantise(rows: Rows, config: RidgeConfig) -> Matrix:
    """Return codes times steps (n, d) float64."""
    features: Matrix = rows.codes * np.ldexp(1.0, np.array(config.exponents))
    return features


def make_task(
    name: str,
    about: str,
    train: tuple[Features, Labels],
    test: tuple[Features, Labels],
    classes: int,
    natural: Sequence[str] | NDArray[np.str_] | None = None,
    penalty: float = PENALTY,
) -> HeadTask:
    """Return a task; the quantiser's steps come from the test rows, which nobody erases."""
    quantiser = calibrate(test[0])
    codes, saturated = quantiser.quantise(train[0])
    config = RidgeConfig(codes.shape[1], classes, quantiser.exponents, quantiser.bits, penalty)
    groups = None if natural is None else np.unique(np.asarray(natural), return_inverse=True)[1]
    return HeadTask(
        name=name,
        about=about,
        rows=Rows(codes, train[1]),
        config=config,
        features=train[0].astype(np.float64),
        test=test[0].astype(np.float64),
        test_labels=test[1],
        natural=groups,
        saturated=saturated,
    )
