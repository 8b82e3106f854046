"""The role of each column of a table: label, id, owner, held-out mark or feature."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Labels
from workers.data.federation import (
    HELD_OUT,
    HELD_OUT_SEED,
    ONE_CLIENT,
    Federation,
    hold_out,
    record_ids,
    share_name,
)
from workers.data.tables.names import matching, shown_names, unknown_column
from workers.data.tables.table import DataTable
from workers.errors import DatasetError

NO_LABEL = "label: name the column of the classes with --label"


@dataclass(frozen=True, slots=True)
class Roles:
    """The columns by role; features are names or globs, empty: every other column.

    A glob skips columns that have another role. persons: the identity columns by kind, such
    as email. holdout: a share, a column of booleans, or none; by default a tenth. numbers:
    the label is a number to predict, not a class. unlabelled: rows need no label; a named
    label column is neither a feature nor read. weight: the column of row weights. added: the
    rows may be added to a model, which has its classes: all may have one label.
    """

    label: str | None = None
    record_id: str | None = None
    client: str | None = None
    subject: str | None = None
    persons: Mapping[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    holdout: float | Literal["none"] | str | None = None
    numbers: bool = False
    unlabelled: bool = False
    weight: str | None = None
    added: bool = False

    def check_label(self, names: Sequence[str]) -> None:
        """Raise DatasetError unless a label is named; `names` are the candidates."""
        if self.label is None and not self.unlabelled:
            raise DatasetError(f"{NO_LABEL}; the table has {shown_names(names)}")

    def option_names(self) -> list[str]:
        """Return the options that name a column."""
        named = {
            "--label": self.label,
            "--record-id": self.record_id,
            "--client": self.client,
            "--subject": self.subject,
            "--person": self.persons,
            "--features": self.features,
            "--holdout COLUMN": self.held_out_column,
            "--sample-weight": self.weight,
        }
        return [option for option, column in named.items() if column]

    def npz_share(self) -> float | None:
        """Return the share of an .npz that is held out: 0 for none, None for the default."""
        if self.holdout is None:
            return None
        return 0.0 if self.holdout == "none" else checked_share(float(self.holdout))

    def chosen(self, names: Sequence[str]) -> list[str]:
        """Return the columns to read from a table. Raises DatasetError."""
        others = list(dict.fromkeys(column for _, column in self._others()))
        for _, column in self._others():
            if column not in names:
                raise DatasetError(unknown_column(column, names))
        return [*others, *self.feature_names(names)]

    def feature_names(self, names: Sequence[str]) -> list[str]:
        """Return the feature columns, in the order of the table.

        Raises DatasetError if a name or glob matches no column, or a feature has another
        role.
        """
        roles = {column: role for role, column in self._others()}
        if not self.features:
            return [name for name in names if name not in roles]
        found: set[str] = set()
        for pattern in self.features:
            if pattern in roles:
                raise DatasetError(
                    f"{pattern}: is the {roles[pattern]} and cannot be a feature too"
                )
            found.update(matching(pattern, names))
        return [name for name in names if name in found and name not in roles]

    def _others(self) -> Iterator[tuple[str, str]]:
        named = {
            "label": self.label,
            "record id": self.record_id,
            "client": self.client,
            "subject": self.subject,
            "held-out column": self.held_out_column,
            "weight": self.weight,
        }
        yield from ((role, column) for role, column in named.items() if column is not None)
        yield from ((f"person's {kind}", column) for kind, column in self.persons.items())

    @property
    def chosen_by(self) -> str:
        """A description of how held-out rows are chosen."""
        if self.held_out_column is not None:
            return f"by {self.held_out_column}"
        return share_name(0.0 if isinstance(self.holdout, str) else self.holdout)

    @property
    def held_out_column(self) -> str | None:
        """The column that marks held-out rows, None for a share or none."""
        if isinstance(self.holdout, str) and self.holdout != "none":
            return self.holdout
        return None


@dataclass(frozen=True, slots=True, eq=False)
class LabelledTable:
    """The labelled rows of a table, with the values of its other roles.

    table has these rows (n,) and all columns read; features are names in it. Every array is
    (n,), identities are digests (n, WIDTH). labels are int64 into label_names, or float64
    without names, zeros if rows need none; label is their column. unlabelled: the number of
    rows skipped. chosen_by: a description of how held-out rows were chosen. one_client: no
    column names clients. weights: finite, at least 0; None without a column.
    """

    table: DataTable
    features: tuple[str, ...]
    labels: Labels | NDArray[np.float64]
    label_names: tuple[str, ...]
    records: NDArray[np.str_]
    clients: NDArray[np.str_]
    subjects: NDArray[np.str_] | None
    identities: Mapping[str, NDArray[np.uint8]]
    is_test: NDArray[np.bool_]
    unlabelled: int
    chosen_by: str
    label: str
    one_client: bool
    weights: NDArray[np.float64] | None = None

    def federation(self) -> Federation:
        """Return the rows with their features as numbers.

        Raises DatasetError as `DataTable.matrix`, or a record's id occurs twice.
        """
        if self.labels.dtype != np.int64:
            raise DatasetError(
                "label: holds numbers to predict, and this kind of model predicts "
                "classes: choose a family that predicts numbers, or a column of classes"
            )
        if self.weights is not None:
            raise DatasetError("weight: this kind of model has none: leave --sample-weight out")
        return Federation(
            features=self.matrix(),
            labels=self.labels.astype(np.int64, copy=False),
            clients=self.clients,
            label_names=self.label_names,
            is_test=self.is_test,
            records=self.records,
            subjects=self.subjects,
            identities=self.identities,
        )

    def vectors(self) -> NDArray[np.float32]:
        """Return the features (n, p) as float32, of columns or of one column of lists.

        Raises DatasetError as `DataTable.lists` and `DataTable.matrix`, or a number is beyond
        float32.
        """
        if len(self.features) == 1 and self.table.holds_lists(self.features[0]):
            return self.table.lists(self.features[0])
        with np.errstate(over="ignore"):
            found = self.matrix().astype(np.float32)
        if not np.isfinite(found).all():
            column = self.features[int(np.flatnonzero(~np.isfinite(found).all(axis=0))[0])]
            raise DatasetError(f"{column}: holds a number beyond float32: scale the vectors")
        return found

    def matrix(
        self,
        *,
        allow_missing: bool = False,
        categories: Mapping[str, Sequence[str]] | None = None,
    ) -> NDArray[np.floating[Any]]:
        """Return the features (n, p) as numbers: see `DataTable.matrix`."""
        return self.table.matrix(
            self.features, allow_missing=allow_missing, categories=categories
        )


def labelled(table: DataTable, roles: Roles) -> LabelledTable:
    """Return the labelled rows of a table; a share of them is drawn and held out.

    Raises DatasetError if a column is unknown or holds values that its role does not allow,
    an id occurs twice, or no row has a label.
    """
    roles.chosen(table.names)
    roles.check_label(table.names)
    holes = np.zeros(len(table), dtype=np.bool_)
    if roles.label is not None and not roles.unlabelled:
        holes = table.holes(roles.label)
        if holes.all():
            raise DatasetError(
                f"{roles.label}: every value is missing: name the column of labels with --label"
            )
    records = record_ids(len(table))[~holes]  # by their position in the file
    table = table.take(~holes)
    labels: Labels | NDArray[np.float64]
    label_names: tuple[str, ...] = ()
    if roles.unlabelled or roles.label is None:
        labels = np.zeros(len(table))
    elif roles.numbers:
        labels = table.matrix((roles.label,))[:, 0].astype(np.float64)
    else:
        labels, label_names = table.classes(roles.label, fewest=1 if roles.added else 2)
    clients = np.full(len(table), ONE_CLIENT)
    if roles.client is not None:
        clients = table.ids(roles.client)
    found = {kind: table.digests(name, kind) for kind, name in sorted(roles.persons.items())}
    if roles.record_id is not None:
        records = table.ids(roles.record_id)
        repeated = len(records) - len(set(records.tolist()))
        if repeated:
            raise DatasetError(
                f"{roles.record_id}: {repeated:,} rows repeat an id: give each "
                "record its own id"
            )
    return LabelledTable(
        table=table,
        features=tuple(roles.feature_names(table.names)),
        labels=labels,
        label_names=label_names,
        records=records,
        clients=clients,
        subjects=None if roles.subject is None else table.ids(roles.subject),
        identities=found,
        is_test=_held_out(table, roles, clients),
        unlabelled=int(holes.sum()),
        chosen_by=roles.chosen_by,
        label=roles.label or "",
        one_client=roles.client is None,
        weights=None if roles.weight is None else _weights(table, roles.weight),
    )


def _weights(table: DataTable, name: str) -> NDArray[np.float64]:
    found = table.matrix((name,))[:, 0].astype(np.float64)
    if (found < 0).any():
        raise DatasetError(f"{name}: is negative in a row: weights are at least 0")
    return found


def _held_out(table: DataTable, roles: Roles, clients: NDArray[np.str_]) -> NDArray[np.bool_]:
    if not isinstance(roles.holdout, str):
        return hold_out(clients, HELD_OUT_SEED, checked_share(roles.holdout))
    if roles.holdout == "none":
        return np.zeros(len(table), dtype=np.bool_)
    found = table.flags(roles.holdout)
    if found.all():
        raise DatasetError(f"{roles.holdout}: holds out every row: leave some to train on")
    return found


def checked_share(share: float | None) -> float:
    """Return the share of rows to hold out. Raises DatasetError unless it is valid."""
    if share is None:
        return HELD_OUT
    if not 0 < share < 1:
        raise DatasetError("holdout: must be a share between 0 and 1, a column, or none")
    return share
