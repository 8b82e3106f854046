"""Whose each row of an upload is, checked, and the upload packed as workers read it."""

import zipfile
from collections.abc import Iterable
from typing import Any, BinaryIO, Self, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from app.problems import UploadError
from app.uploads.checked import CheckedUpload
from app.uploads.npz import Archive, Header, read_ids
from app.vault.artifacts import StagedArtifact

OWNERS = ("clients", "records", "subjects")  # arrays of ids, one for each row
BLOCK = 1 << 14  # ids packed at a time


class Packed:
    """An uncompressed .npz that is written an array after the other, in blocks."""

    def __init__(self, file: StagedArtifact) -> None:
        self.file = file
        self._archive = zipfile.ZipFile(cast(BinaryIO, file), "w")

    def add(
        self,
        name: str,
        kind: DTypeLike,
        like: Header,
        blocks: Iterable[NDArray[Any]],
    ) -> None:
        """Add an array of the shape and order of `like`; `blocks` are its elements.

        Raises OSError: the disk is full or failing.
        """
        dtype = np.dtype(kind)
        header = {
            "descr": npy.dtype_to_descr(dtype),
            "fortran_order": like.fortran,
            "shape": like.shape,
        }
        with self._archive.open(f"{name}.npy", "w", force_zip64=True) as member:
            npy.write_array_header_1_0(member, header)
            for block in blocks:
                member.write(block.astype(dtype, copy=False).tobytes())

    def add_ids(self, name: str, values: list[str]) -> None:
        """Add ids, as wide as the longest of them. Raises OSError."""
        kind = np.dtype(f"<U{max(map(len, values))}")
        starts = range(0, len(values), BLOCK)
        like = Header((len(values),), kind, False, 0)
        blocks = (np.array(values[start : start + BLOCK], kind) for start in starts)
        self.add(name, kind, like, blocks)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Write the directory, after a failure too: the file is then removed."""
        self._archive.close()


def add_owners(
    packed: Packed, archive: Archive, rows: int, *, records_required: bool
) -> CheckedUpload:
    """Add whose each row is.

    `subjects` defaults to the clients and, unless `records_required`, `records` to the row
    numbers, which are distinct within one upload only.

    Raises:
        UploadError: An array of ids is missing, has a wrong shape or type, or ids repeat.
    """
    given = archive.headers
    if records_required and "records" not in given:
        raise UploadError("the .npz lacks: records")
    clients = read_ids(archive, "clients")
    if "records" in given:
        records = read_ids(archive, "records")
    else:
        records = list(map(str, range(rows)))
    subjects = read_ids(archive, "subjects") if "subjects" in given else clients
    if len(set(records)) != rows:
        raise UploadError("record ids repeat: a record is its id, so each needs its own")
    for name, values in (("clients", clients), ("records", records), ("subjects", subjects)):
        packed.add_ids(name, values)
    return CheckedUpload(packed.file, rows, records, clients, subjects)
