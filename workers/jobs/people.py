"""The identities in an accepted upload, for the table of keyed digests."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from app.service.desk.people import RecordIdentity
from lethe.identity import COLUMN, HELD_OUT, unpack
from models import person


def identities(file: BinaryIO) -> Iterator[RecordIdentity]:
    """Yield each identity in an upload packed by `app.uploads`; held-out rows may have some."""
    file.seek(0)
    import numpy as np  # keeps numpy out of a worker's start

    with np.load(file, allow_pickle=False) as arrays:
        for prefix, state in (("", person.LEARNED), (HELD_OUT, person.HELD_OUT)):
            columns = [name for name in arrays.files if name.startswith(prefix + COLUMN)]
            records: list[str] = arrays[f"{prefix}records"].tolist() if columns else []
            for name in columns:
                kind, rows = name.removeprefix(prefix + COLUMN), arrays[name]
                yield from _of_column(kind, state, records, rows)


def _of_column(
    kind: str, state: str, records: list[str], rows: Any
) -> Iterator[RecordIdentity]:
    for record, row in zip(records, rows, strict=True):
        if found := unpack(row.tobytes()):
            yield RecordIdentity(record, state, kind, found)
