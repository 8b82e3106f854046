"""The data sets: scikit-learn's, one that is made, and files: .npz or tables."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    make_classification,
)

from benchmarks.families.models import Numbers
from benchmarks.forest import chosen, sample
from workers.data.opening import is_table, read_labelled
from workers.data.tables.labelled import Roles

MADE = 50_000  # rows of the data set that is made: what is fixed in a deletion weighs less
DataSet = Callable[[], tuple[Numbers, Numbers]]


def data_sets(
    files: Sequence[Path], *, quick: bool, label: str = "label", features: Sequence[str] = ()
) -> dict[str, DataSet]:
    """Return the data sets by name, each read when it is asked for.

    files: an .npz has features and labels. A table, such as Parquet, has the column `label`
    and the columns `features`, all others by default: numbers, or one of lists of them.
    """
    found: dict[str, DataSet] = {
        "breast_cancer": lambda: load_breast_cancer(return_X_y=True),
        "diabetes": lambda: load_diabetes(return_X_y=True),
    }
    if not quick:
        found["digits"] = lambda: load_digits(return_X_y=True)
        found["made"] = lambda: make_classification(
            MADE, 30, n_informative=10, n_redundant=2, random_state=0
        )
    rows = 500 if quick else 4000
    roles = Roles(label=label, features=tuple(features), holdout="none")
    return found | {path.stem: _file(path, rows, roles) for path in files}


def _file(path: Path, rows: int, roles: Roles) -> DataSet:
    return lambda: _table(path, rows, roles) if is_table(path) else sample(path, rows)


def _table(path: Path, rows: int, roles: Roles) -> tuple[Numbers, Numbers]:
    """Return a random sample of a table. Raises DatasetError, naming a column."""
    found, _ = read_labelled(path, roles)
    only = found.features[0] if len(found.features) == 1 else ""
    lists = bool(only) and found.table.holds_lists(only)
    features = found.vectors() if lists else found.matrix()
    return chosen(features, found.labels.astype(np.int64), rows)
