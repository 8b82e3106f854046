"""Labelled rows that belong to clients: the result of every reader."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Labels
from workers.data.identities import Column, check_column
from workers.errors import DatasetError

HELD_OUT = 0.1
HELD_OUT_SEED = 0  # of the rows that are held out of a file
ONE_CLIENT = "all"  # the client of all rows of a table without a client column


@dataclass(frozen=True, slots=True, eq=False)
class Federation:
    """features (n, p) float; labels (n,) int64 into label_names; clients and records str.

    is_test (n,) marks held-out rows, which are never trained on: only they may calibrate a
    quantiser or measure accuracy. records (n,) are distinct: a record is its id, not its
    content. subjects (n,) name the person within the client; None: the client itself.
    identities: by kind, such as email, one identity for each row, "" for none: (n,) strings,
    or (n, WIDTH) bytes if already hashed (`lethe.identity`). Raises DatasetError, naming the
    array, for anything else.
    """

    features: NDArray[np.floating[Any]]
    labels: Labels
    clients: NDArray[np.str_]
    label_names: tuple[str, ...]
    is_test: NDArray[np.bool_]
    records: NDArray[np.str_]
    subjects: NDArray[np.str_] | None = None
    identities: Mapping[str, Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows = len(self.features)
        if self.features.ndim != 2 or 0 in self.features.shape:
            raise DatasetError("features: must be a matrix with at least one row and column")
        if self.features.dtype.kind != "f" or not np.isfinite(self.features).all():
            raise DatasetError("features: must be floats without NaN or infinity")
        for name in ("labels", "clients", "is_test", "records"):
            if getattr(self, name).shape != (rows,):
                raise DatasetError(f"{name}: must hold exactly one entry for each row")
        if self.subjects is not None and self.subjects.shape != (rows,):
            raise DatasetError("subjects: must hold exactly one entry for each row")
        if self.labels.dtype != np.int64:
            raise DatasetError("labels: must be int64")
        if self.labels.min() < 0 or self.labels.max() >= len(self.label_names):
            raise DatasetError(
                "labels: one has no name: labels count from 0, and label_names has "
                f"{len(self.label_names)}"
            )
        if self.is_test.dtype != np.bool_:
            raise DatasetError("is_test: must be booleans, true for the rows that are held out")
        if self.is_test.all():
            raise DatasetError("is_test: holds out every row: leave some to train on")
        if len(set(self.records.tolist())) != rows:
            raise DatasetError("records: an id repeats: give each record its own id")
        for kind, column in self.identities.items():
            check_column(kind, column, rows)


def record_ids(rows: int) -> NDArray[np.str_]:
    """Return ids for records without their own: their positions."""
    return np.array([f"record-{row:07d}" for row in range(rows)])


def hold_out(clients: NDArray[Any], seed: int, share: float = HELD_OUT) -> NDArray[np.bool_]:
    """Return is_test (n,): a random share of the rows, but never a client's last row.

    At least one row is held out wherever some client has two. The same seed and clients
    give the same rows.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    owners = clients.tolist()
    left = Counter(owners)
    wanted = max(1, int(share * len(owners)))
    is_test = np.zeros(len(owners), dtype=np.bool_)
    for row in rng.permutation(len(owners)).tolist():
        if wanted and left[owners[row]] > 1:
            left[owners[row]] -= 1
            is_test[row] = True
            wanted -= 1
    return is_test


def share_name(share: float | None) -> str:
    """Return a description of how a share was held out; None: the default."""
    if share is None:
        return "a tenth, drawn at random"
    return f"{share:g} of them, drawn at random" if share else "none, as asked for"


def counted(number: int, noun: str) -> str:
    """Return a count with its noun, such as "1 row" or "2,000 rows"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
