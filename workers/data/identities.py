"""Identity columns: read from files, and hashed before anything is written."""

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.identity import COLUMN, HELD_OUT, WIDTH, IdentityError, check_kind, digests, pack
from workers.arrays import UNREADABLE, load_numpy
from workers.errors import DatasetError

TEST = "is_test"  # the array that marks held-out rows
LABEL_NAMES = "label_names"
# One value for each row, "" for none: (n,) strings; or already hashed: (n, WIDTH) bytes.
Column = NDArray[np.str_] | NDArray[np.uint8]


def names(found: Iterable[str]) -> list[str]:
    """Return the array names that hold identities, sorted."""
    return sorted(name for name in found if name.startswith(COLUMN))


def columns(arrays: Mapping[str, Any], rows: int) -> dict[str, Column]:
    """Return each kind's column among a file's arrays; integers as strings.

    Raises DatasetError if an array is no such column, or its name is no kind.
    """
    found: dict[str, Column] = {}
    for name in names(arrays):
        column = arrays[name]
        if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in "iu":
            column = column.astype(np.str_)
        kind = name.removeprefix(COLUMN)
        check_column(kind, column, rows)
        found[kind] = column
    return found


def check_column(kind: str, column: Any, rows: int) -> None:
    """Raise DatasetError unless `column` holds an identity of this kind for each row."""
    name = COLUMN + kind
    try:
        check_kind(kind)
    except IdentityError as error:
        raise DatasetError(f"{name}: {error.detail}") from None
    valid = isinstance(column, np.ndarray) and (
        (column.dtype.kind == "U" and column.shape == (rows,))
        or (column.dtype == np.uint8 and column.shape == (rows, WIDTH))
    )
    if not valid:
        raise DatasetError(
            f"{name}: must be one string for each row, empty for none, or its {WIDTH} bytes of "
            "digests"
        )


def hashed(kind: str, column: Column) -> NDArray[np.uint8]:
    """Return a column's digests (n, WIDTH), as `lethe.identity.pack` writes them.

    Raises DatasetError, naming the row but not the value, if a value is invalid for its kind.
    """
    if column.dtype.kind != "U":
        return column.astype(np.uint8, copy=False)
    values, places = np.unique(column, return_inverse=True)
    packed = np.zeros((len(values), WIDTH), dtype=np.uint8)
    for place, value in enumerate(values.tolist()):
        if value.strip():
            try:
                row = pack(digests(kind, value))
            except IdentityError as error:
                number = int(np.flatnonzero(places == place)[0])
                raise DatasetError(f"{COLUMN}{kind}: row {number}: {error.detail}") from None
            packed[place] = np.frombuffer(row, dtype=np.uint8)
    return packed[places]


def to_send(
    identities: Mapping[str, Column],
    records: NDArray[np.str_],
    held_out: NDArray[np.bool_] | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the digest arrays that an upload takes besides its rows.

    held_out (n,): marks rows whose features are not sent. Their ids and identities are sent,
    so that a person found only there can be told so. Raises DatasetError as `hashed`.
    """
    if held_out is None:
        held_out = np.zeros(len(records), dtype=np.bool_)
    sent: dict[str, NDArray[Any]] = {}
    for kind, column in sorted(identities.items()):
        digest_rows = hashed(kind, column)
        sent[COLUMN + kind] = digest_rows[~held_out]
        if held_out.any():
            sent[HELD_OUT + COLUMN + kind] = digest_rows[held_out]
    if sent and held_out.any():
        sent[HELD_OUT + "records"] = records[held_out]
    return sent


def rows_to_send(
    features: NDArray[Any],
    labels: NDArray[Any],
    owners: Mapping[str, NDArray[np.str_]],
    held_out: NDArray[np.bool_],
) -> dict[str, NDArray[Any]]:
    """Return the arrays of the held-out rows, on which versions are measured.

    owners: records, clients and subjects (n,). held_out (n,): marks the rows. Raises
    DatasetError if there are none.
    """
    if not held_out.any():
        raise DatasetError(
            "--send-holdout: no row is held out: hold some out with --holdout, or with is_test "
            "in an .npz, or leave the option out"
        )
    arrays = {"features": features, "labels": labels, **owners}
    return {HELD_OUT + name: array[held_out] for name, array in arrays.items()}


def sent_of_held_out(named: bool, *, rows: bool = False) -> str:
    """Return a description of what is sent of held-out rows.

    named: the rows have identities, see `to_send`. rows: the rows themselves are sent.
    """
    if rows:
        return "they are sent too, sealed: every version is measured on them"
    return "only their ids and hashed identities are sent" if named else "they are not sent"


def contributed_npz(path: Path, classes: Sequence[str] = ()) -> bytes:
    """Return an .npz of rows to contribute: identities hashed, without the rows held out.

    Labels become the numbers of the model's `classes` if the file names its own: it may have
    others, or another order. It is the file itself if it has none of these. The service refuses
    a file in which `is_test` marks a row, or whose `label_names` are other than the classes.

    Raises:
        DatasetError: The file is no readable .npz, `is_test` does not say of each row whether
            it is held out, or holds out all; labels have no name, or one that is no class; or
            as `columns` and `hashed`.
        OSError: The file cannot be read.
    """
    try:
        with load_numpy(path) as archive:
            renumber = bool(classes) and {"labels", LABEL_NAMES} <= set(archive.files)
            if not names(archive.files) and TEST not in archive.files and not renumber:
                return path.read_bytes()
            arrays = {name: archive[name] for name in archive.files}
        if any(not isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("a member is no array")
    except (FileNotFoundError, PermissionError):
        raise
    except UNREADABLE:
        raise DatasetError("the file is not a readable .npz: save it again") from None
    rows = len(arrays["records"]) if "records" in arrays else len(next(iter(arrays.values())))
    for kind, column in columns(arrays, rows).items():
        arrays[COLUMN + kind] = hashed(kind, column)
    if (held := arrays.pop(TEST, None)) is not None:
        if held.dtype != np.bool_ or held.shape != (rows,):
            raise DatasetError(f"{TEST}: must be one boolean for each row")
        if held.all():
            raise DatasetError(f"{TEST}: holds out every row: there is nothing to contribute")
        for name, array in arrays.items():
            beside = name in ("extractor", LABEL_NAMES) or name.startswith(HELD_OUT)
            if not beside and array.shape[:1] == (rows,):
                arrays[name] = array[~held]
    if renumber:
        own = arrays.pop(LABEL_NAMES)
        arrays["labels"] = _renumbered(arrays["labels"], own, classes)
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    return packed.getvalue()


def rows_held_out(path: Path) -> int:
    """Return how many rows `is_test` of a readable .npz holds out."""
    with load_numpy(path) as archive:
        return int(np.sum(archive[TEST])) if TEST in archive.files else 0


def _renumbered(
    labels: NDArray[Any], own: NDArray[Any], classes: Sequence[str]
) -> NDArray[np.int64]:
    """Return labels (n, …), which are indices in the names `own`, as indices in `classes`."""
    if own.ndim != 1 or own.dtype.kind != "U" or len(set(own.tolist())) != len(own):
        raise DatasetError("label_names: must be a list of strings, each once")
    if labels.dtype.kind not in "iu" or not labels.size:
        raise DatasetError("labels: must be integers, one for each row")
    if int(labels.min()) < 0 or int(labels.max()) >= len(own):
        raise DatasetError(
            f"labels: one has no name: labels count from 0, and label_names has {len(own)}"
        )
    places = {name: place for place, name in enumerate(classes)}
    known = np.array([places.get(name, -1) for name in own.tolist()], np.int64)
    found: NDArray[np.int64] = known[labels]
    if unknown := int((found < 0).sum()):
        raise DatasetError(
            f"{unknown:,} labels are none of the model's classes, which `lethe model show` "
            "lists: correct them or leave their rows out"
        )
    return found
