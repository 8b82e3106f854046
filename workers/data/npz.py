"""Any .npz with features, labels and clients, as a federation.

features (n, p) numbers · labels (n,) integers from 0 · clients (n,) integers or strings
optional: records (n,) distinct ids, integers or strings · subjects (n,) integers or strings ·
          is_test (n,) booleans · label_names (c,) strings ·
          identity_KIND (n,) integers or strings, or digests (n, 68) as `lethe features` writes
"""

from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from workers.arrays import UNREADABLE, Labels, load_numpy
from workers.data import identities
from workers.data.federation import HELD_OUT, HELD_OUT_SEED, Federation, hold_out, record_ids
from workers.errors import DatasetError

REQUIRED = ("features", "labels", "clients")
OPTIONAL = ("records", "subjects", "is_test", "label_names")
MOST_CLASSES = 10_000  # accepted by the service; a name is created for each
EXACT = 1 << 53  # floats hold every integer up to here

_Array = NDArray[Any]


def load_npz(
    source: Path | IO[bytes],
    seed: int = HELD_OUT_SEED,
    share: float = HELD_OUT,
    *,
    labelled: bool = True,
) -> Federation:
    """Return the federation in a file; without `is_test`, a share is held out by `seed`.

    share 0: no row is held out. Unless labelled, all labels are 0, whatever the file
    contains. Without `records`, a record's id is its position in the file; without
    `subjects`, a row's subject is its client. Nothing in the file is executed: pickled
    objects are refused. Raises DatasetError naming the array at fault, or that the file is no
    .npz.
    """
    try:
        opened = source.open("rb") if isinstance(source, Path) else nullcontext(source)
        with opened as file:
            archive = load_numpy(file)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DatasetError("the file is one array: save it with numpy.savez")
            wanted = (*REQUIRED, *OPTIONAL, *identities.names(archive.files))
            arrays = {name: _read(archive, name) for name in wanted}
    except UNREADABLE:
        raise DatasetError("the file is not a readable .npz: save it again") from None
    if not labelled and arrays["features"] is not None:
        arrays["labels"] = np.zeros(len(np.atleast_1d(arrays["features"])), dtype=np.int64)
        arrays["label_names"] = None
    for name in REQUIRED:
        if arrays[name] is None:
            raise DatasetError(f"{name}: missing; a federation has {', '.join(REQUIRED)}")
    features = _features(cast(_Array, arrays["features"]))
    labels = _labels(cast(_Array, arrays["labels"]))
    clients = _ids("clients", cast(_Array, arrays["clients"]), len(features))
    records, is_test, subjects = arrays["records"], arrays["is_test"], arrays["subjects"]
    if is_test is None:
        drawn = hold_out(clients, seed, share) if share else None
        is_test = np.zeros(len(features), dtype=np.bool_) if drawn is None else drawn
    return Federation(
        features=features,
        labels=labels,
        clients=clients,
        label_names=_label_names(arrays["label_names"], labels),
        is_test=is_test,
        records=record_ids(len(features))
        if records is None
        else _ids("records", records, len(features)),
        subjects=None if subjects is None else _ids("subjects", subjects, len(features)),
        identities=identities.columns(arrays, len(features)),
    )


def names_held_out(path: Path) -> bool:
    """Return whether a readable file itself marks held-out rows."""
    with path.open("rb") as file, load_numpy(file) as archive:
        return "is_test" in archive.files


def unused(path: Path) -> tuple[str, ...]:
    """Return the names of a readable file's unused arrays, such as misspelt ones."""
    with path.open("rb") as file, load_numpy(file) as archive:
        known = {*REQUIRED, *OPTIONAL, "extractor", *identities.names(archive.files)}
        return tuple(sorted(set(archive.files) - known))


def _read(archive: "np.lib.npyio.NpzFile[Any]", name: str) -> _Array | None:
    if name not in archive.files:
        return None
    try:
        array: _Array = archive[name]
    except UNREADABLE:
        raise DatasetError(
            f"{name}: damaged, or pickled objects, which are never read: save numbers or texts"
        ) from None
    if not isinstance(array, np.ndarray):
        raise DatasetError(f"{name}: not an array: save the file with numpy.savez")
    return array


def _features(array: _Array) -> NDArray[np.floating[Any]]:
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise DatasetError("features: must be a matrix of numbers, one row for each record")
    return as_floats("features", array)


def as_floats(name: str, array: _Array) -> NDArray[np.floating[Any]]:
    """Return numbers as float32 if it holds them all, otherwise as float64.

    Raises DatasetError for an integer above 2**53.
    """
    wide = array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size > 0
    if wide and max(-int(array.min()), int(array.max())) > EXACT:
        raise DatasetError(
            f"{name}: holds an integer above 2**53, which a float cannot hold exactly"
        )
    # Half floats and bytes fit float32; anything wider would lose digits.
    narrow = array.dtype == np.float32 or array.dtype.itemsize <= 2
    return array.astype(np.float32 if narrow else np.float64)


def _labels(array: _Array) -> Labels:
    if array.size == 0:
        raise DatasetError("the file has no rows")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DatasetError("labels: must be one integer for each row")
    if int(array.min()) < 0 or int(array.max()) >= MOST_CLASSES:
        raise DatasetError(f"labels: must count from 0, to less than {MOST_CLASSES:,}")
    return array.astype(np.int64)


def _ids(name: str, array: _Array, rows: int) -> NDArray[np.str_]:
    if array.shape != (rows,) or array.dtype.kind not in "iuU":
        raise DatasetError(f"{name}: must be one integer or string for each row")
    return _checked(name, array.astype(np.str_))


def _checked(name: str, array: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return texts. Raises DatasetError for one with an invalid code point."""
    try:
        array.tolist()
    except (SystemError, ValueError):
        raise DatasetError(
            f"{name}: holds a code point that is no character: save it as UTF-8"
        ) from None
    return array


def _label_names(array: _Array | None, labels: Labels) -> tuple[str, ...]:
    classes = int(labels.max()) + 1
    if array is None:
        return tuple(str(label) for label in range(classes))
    if array.ndim != 1 or array.dtype.kind != "U":
        raise DatasetError("label_names: must be a list of strings")
    if len(set(_checked("label_names", array).tolist())) != len(array):
        raise DatasetError("label_names: a name repeats: give each label its own name")
    return tuple(str(name) for name in array)
