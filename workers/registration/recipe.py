"""Pack labelled rows and a recipe as a registration for POST /v1/models."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lethe import canonical
from workers.data.federation import Federation, counted
from workers.data.identities import Column, rows_to_send, sent_of_held_out, to_send
from workers.errors import DatasetError, RefusedError

if TYPE_CHECKING:
    from workers.data.tables.labelled import LabelledTable  # needs pyarrow: the extra [tables]


@dataclass(frozen=True, slots=True, eq=False)
class RecipeRows:
    """features (n, d), NaN where missing; labels (n,) indices in `classes`, or numbers.

    clients, records and subjects (n,) str; is_test (n,) bool: never fitted on, and sent only
    with `send_held_out`. names: of the features, if they have some. weights (n,): of rows, if a
    column holds them.
    """

    features: NDArray[Any]
    labels: NDArray[Any]
    classes: tuple[str, ...]
    clients: NDArray[np.str_]
    records: NDArray[np.str_]
    subjects: NDArray[np.str_]
    is_test: NDArray[np.bool_]
    identities: Mapping[str, Column]
    send_held_out: bool = False
    names: tuple[str, ...] = ()
    weights: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RecipeRegistration:
    """A registration, and the held-out rows to measure the model by.

    features (h, d) and labels (h,) are held out; records, clients and subjects (n,) are fitted
    on. names_held_out: ids and hashed identities of held-out rows are sent; sends_held_out: so
    are the rows. bins: the number of records that are held-out rows making the bins of a
    forest.
    """

    manifest: dict[str, Any]
    npz: bytes
    features: NDArray[Any]
    labels: NDArray[Any]
    records: list[str]
    clients: list[str]
    subjects: list[str]
    names_held_out: bool
    sends_held_out: bool
    bins: int = 0
    held_out_use: ClassVar[str] = "measure the model"

    def summary(self) -> str:
        """Return one sentence for people: what is sent, and what is held out."""
        if self.bins:
            held_out = (
                f"{self.bins:,} of the records are held-out rows, whose quantiles are the bin "
                "edges and which no tree learns"
            )
            if self.sends_held_out:
                held_out += ", and every version is measured on them"
        else:
            sent = sent_of_held_out(self.names_held_out, rows=self.sends_held_out)
            held_out = f"held-out rows only {self.held_out_use}; {sent}"
        return (
            f"{counted(len(self.records), 'record')} of "
            f"{counted(len(set(self.subjects)), 'subject')} and "
            f"{counted(len(set(self.clients)), 'client')}; {held_out}"
        )


def read_recipe(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file with options. Raises RefusedError for anything else."""
    try:
        found = canonical.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        raise RefusedError(f"{path.name}: not a readable JSON file") from None
    if not isinstance(found, dict):
        raise RefusedError(f"{path.name}: must be one JSON object")
    return found


def rows_of_table(
    table: "LabelledTable",
    features: NDArray[np.floating[Any]] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
) -> RecipeRows:
    """Return the rows of a table; features: names of columns read as another kind of feature.

    categories: of columns of texts, as `DataTable.matrix`.

    Raises DatasetError for features of other kinds.
    """
    if features is None:
        unknown = [name for name in categories or {} if name not in table.features]
        if unknown:
            raise DatasetError(f"categories: {unknown[0]} is not among the features")
        features = table.matrix(allow_missing=True, categories=categories).astype(np.float64)
    return RecipeRows(
        features,
        table.labels,
        table.label_names,
        table.clients,
        table.records,
        table.clients if table.subjects is None else table.subjects,
        table.is_test,
        table.identities,
        names=table.features,
        weights=table.weights,
    )


def rows_of_federation(
    data: Federation, features: NDArray[np.floating[Any]] | None = None
) -> RecipeRows:
    """Return the rows of an .npz, which have no missing values; features: of another type."""
    return RecipeRows(
        data.features.astype(np.float64) if features is None else features,
        data.labels,
        data.label_names,
        data.clients,
        data.records,
        data.clients if data.subjects is None else data.subjects,
        data.is_test,
        data.identities,
    )


def prepare_recipe(
    rows: RecipeRows, recipe: Mapping[str, Any], *, ref: str
) -> RecipeRegistration:
    """Pack the rows that are not held out, with the manifest for them.

    recipe: the JSON file; its `categories` are registered with the names of the features.
    """
    document = dict(recipe)
    columns = columns_of(rows, document.pop("categories", {}))
    return pack(rows, {"family": "recipe", "ref": ref, **columns, "recipe": document})


def columns_of(rows: RecipeRows, categories: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a manifest that describe a row."""
    found: dict[str, Any] = {
        "classes": list(rows.classes),
        "columns": rows.features.shape[1],
    }
    if rows.names:
        found["features"] = list(rows.names)
    if categories:
        found["categories"] = categories
    if rows.weights is not None:
        found["weighted"] = True
    return found


def contributed(rows: RecipeRows, manifest: Mapping[str, Any]) -> bytes:
    """Return the .npz of rows that a client adds to a model with this manifest.

    Raises RefusedError if a label is not one of the model's classes, or weights are missing or
    unexpected. The message has counts and no value.
    """
    weighted = bool(manifest["weighted"])
    if weighted != (rows.weights is not None):
        raise RefusedError(
            "the model is registered with weights: name their column with --sample-weight"
            if weighted
            else "the model is registered without weights: leave --sample-weight out"
        )
    classes = list(manifest["classes"])
    if not classes:
        return pack(rows, {}).npz
    places = np.array([classes.index(one) if one in classes else -1 for one in rows.classes])
    labels = places[rows.labels]
    if unknown := int((labels < 0).sum()):
        raise RefusedError(
            f"{unknown:,} rows have a label that is none of the model's classes, "
            "which `lethe model show` lists: correct the labels or leave these "
            "rows out"
        )
    return pack(replace(rows, labels=labels.astype(np.int64)), {}).npz


def pack(
    rows: RecipeRows, manifest: dict[str, Any], *, bins: bool = False
) -> RecipeRegistration:
    """Pack the rows that are not held out, for a manifest.

    bins: all rows, with an array `bins` that marks the held-out ones.
    """
    train = np.ones(len(rows.records), bool) if bins else ~rows.is_test
    everyone = {
        name: column.astype(np.str_)
        for name, column in (
            ("clients", rows.clients),
            ("records", rows.records),
            ("subjects", rows.subjects),
        )
    }
    owners = {name: column[train] for name, column in everyone.items()}
    evaluation = {}
    if rows.send_held_out:
        evaluation = rows_to_send(rows.features, rows.labels, everyone, rows.is_test)
    weights = {} if rows.weights is None else {"weights": rows.weights[train]}
    people = to_send(rows.identities, rows.records, rows.is_test)
    if bins:
        held_out = people if rows.send_held_out else {}
        people = {**held_out, **to_send(rows.identities, rows.records)}
        weights["bins"] = rows.is_test
    packed = io.BytesIO()
    np.savez(
        packed,
        allow_pickle=False,
        features=rows.features[train],
        labels=rows.labels[train],
        **owners,
        **weights,
        **{**people, **evaluation},
    )
    return RecipeRegistration(
        manifest,
        packed.getvalue(),
        rows.features[rows.is_test],
        rows.labels[rows.is_test],
        owners["records"].tolist(),
        owners["clients"].tolist(),
        owners["subjects"].tolist(),
        bool(rows.identities) and bool(rows.is_test.any()),
        bool(evaluation),
        int(rows.is_test.sum()) if bins else 0,
    )
