"""Any .npz with an extractor's inputs, and the arrays that stay next to them.

inputs or features (n, …) numbers · or texts (n,) strings · or images (n, h, w, 3) uint8
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lethe.identity import COLUMN
from workers.arrays import UNREADABLE, load_numpy
from workers.data import identities
from workers.data.extractors.base import Kind
from workers.data.extractors.described import Described, parse_description
from workers.data.npz import as_floats
from workers.errors import DatasetError

if TYPE_CHECKING:
    from workers.data.tables.labelled import LabelledTable

KINDS: dict[str, Kind] = {
    "inputs": "features",
    "features": "features",
    "texts": "texts",
    "images": "images",
}
BESIDE = ("labels", "clients", "records", "subjects", "is_test", "label_names")
_Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Raw:
    """inputs (n, …) of one kind; `beside`: the arrays of BESIDE that were in the file.

    Identities are digests, because a file of features must not name anybody.
    """

    inputs: _Array
    kind: Kind
    beside: Mapping[str, _Array]


def load_raw(path: Path) -> Raw:
    """Return the inputs in a file, numbers as floats. Pickled objects are refused.

    Raises DatasetError, naming the array at fault, or that the file is no .npz.
    """
    try:
        with path.open("rb") as file, load_numpy(file) as archive:
            wanted = (*KINDS, *BESIDE, *identities.names(archive.files))
            found = {name: archive[name] for name in wanted if name in archive.files}
        if any(not isinstance(array, np.ndarray) for array in found.values()):
            raise ValueError("a member is no array")
    except UNREADABLE:
        raise DatasetError(
            "the file is not a readable .npz, or holds pickled objects: save it again"
        ) from None
    names = [name for name in KINDS if name in found]
    if len(names) != 1:
        raise DatasetError(f"the file must hold exactly one array of {', '.join(KINDS)}")
    inputs = found[names[0]]
    if inputs.ndim == 0 or len(inputs) == 0:
        raise DatasetError(f"{names[0]}: must hold at least one row")
    if KINDS[names[0]] == "features":
        inputs = _matrix(names[0], inputs)
    beside = {name: found[name] for name in BESIDE if name in found}
    for name, array in beside.items():
        if name != "label_names" and array.shape != (len(inputs),):
            raise DatasetError(f"{name}: must hold exactly one entry for each row")
    for kind, column in identities.columns(found, len(inputs)).items():
        beside[COLUMN + kind] = identities.hashed(kind, column)
    return Raw(inputs, KINDS[names[0]], beside)


def raw_of(rows: "LabelledTable", text: str | None) -> Raw:
    """Return the labelled rows of a table, as inputs: its features, or one column of texts.

    Held-out rows are marked if requested. Raises DatasetError as `DataTable.matrix`, or the
    column holds no texts.
    """
    beside: dict[str, _Array] = {
        "labels": rows.labels,
        "label_names": np.array(rows.label_names),
        "clients": rows.clients,
        "records": rows.records,
    }
    if rows.subjects is not None:
        beside["subjects"] = rows.subjects
    if rows.is_test.any():
        beside["is_test"] = rows.is_test
    beside |= {COLUMN + kind: column for kind, column in rows.identities.items()}
    if text is not None:
        return Raw(rows.table.strings(text), "texts", beside)
    return Raw(rows.matrix(), "features", beside)


def load_extractor(path: Path) -> Described | None:
    """Return the extractor of a file's features, None if it names none.

    Raises DatasetError if the file is no .npz, ExtractorError if the name is malformed.
    """
    try:
        with path.open("rb") as file, load_numpy(file) as archive:
            text = archive["extractor"] if "extractor" in archive.files else None
    except UNREADABLE:
        raise DatasetError("the file is not a readable .npz: save it again") from None
    return None if text is None else parse_description(str(text))


def _matrix(name: str, array: _Array) -> _Array:
    if array.ndim < 2 or array.dtype.kind not in "fiu":
        raise DatasetError(f"{name}: must be numbers, one row for each record")
    return as_floats(name, array.reshape(len(array), -1))
