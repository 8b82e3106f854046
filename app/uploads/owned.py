"""Checks the owner of each row of an upload, and packs the upload for workers."""

import zipfile
from collections.abc import Iterable
from typing import Any, BinaryIO, Self, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from app.problems import UploadError
from app.uploads.checked import CheckedUpload
from app.uploads.npz import HELD_OUT_RECORDS, Archive, Header, Headers, check_ids, read_ids
from app.vault.artifacts import StagedArtifact
from lethe.identity import COLUMN, HELD_OUT, MAX_KINDS, WIDTH, IdentityError, check_kind

OWNERS = ("clients", "records", "subjects")  # arrays of ids, one for each row
BLOCK = 1 << 14  # ids packed at a time
HELD_OUT_COLUMN = HELD_OUT + COLUMN


class Packed:
    """An uncompressed .npz that is written one array after the other, in blocks."""

    def __init__(self, file: StagedArtifact) -> None:
        self.file = file
        self._archive = zipfile.ZipFile(cast(BinaryIO, file), "w")

    def add(
        self, name: str, kind: DTypeLike, like: Header, blocks: Iterable[NDArray[Any]]
    ) -> None:
        """Add an array of the shape and order of `like`; `blocks` are its elements.

        Raises OSError if the disk is full or failing.
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
        """Write the directory, also after a failure, although the file is then removed."""
        self._archive.close()


def add_owners(
    packed: Packed,
    archive: Archive,
    rows: int,
    learned: NDArray[np.bool_] | None = None,
    *,
    records_required: bool,
) -> CheckedUpload:
    """Add the owner and record id of each row.

    `subjects` defaults to the clients and, unless `records_required`, `records` to the row
    numbers, which are distinct within one upload only. learned (n,): false for rows that may
    also be held-out rows; by default all are learned. Raises UploadError if an array of ids is
    missing, has a wrong shape or type, or ids repeat.
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
        raise UploadError("record ids repeat: give each record its own id")
    for name, values in (("clients", clients), ("records", records), ("subjects", subjects)):
        packed.add_ids(name, values)
    known = records if learned is None else np.array(records)[learned].tolist()
    held_out = add_identities(packed, archive, set(known))
    return CheckedUpload(packed.file, rows, records, clients, subjects, held_out)


def check_owners(
    headers: Headers, rows: int, max_bytes: int, *, evaluated: bool = False
) -> None:
    """Check owners and identities by their headers. Raises as `check_people`."""
    check_ids(headers, OWNERS, rows, max_bytes)
    check_people(headers, rows, max_bytes, evaluated=evaluated)


def check_people(
    headers: Headers, rows: int, max_bytes: int, *, evaluated: bool = False
) -> None:
    """Check the identities of `rows` rows and of held-out rows by their headers.

    evaluated: whether the held-out rows themselves may be sent (`app.uploads.evaluation`).

    identity_KIND (rows, WIDTH) uint8 are digests, as `lethe.identity.pack` writes them; so are
    held_out_identity_KIND (m, WIDTH), beside held_out_records (m,) ids.

    Raises UploadError: an array has another form, or there are too many kinds;
    BodyTooLargeError: the ids of held-out rows would take more than `max_bytes`.
    """
    kinds = {name.removeprefix(HELD_OUT).removeprefix(COLUMN) for name in _columns(headers)}
    if len(kinds) > MAX_KINDS:
        raise UploadError(f"a model can have at most {MAX_KINDS} kinds of identities")
    if not evaluated and HELD_OUT + "features" in headers:
        raise UploadError(
            f"held-out rows are sent only with the registration: leave out {HELD_OUT}features"
        )
    held = headers.get(HELD_OUT_RECORDS)
    if held is not None:
        if held.ndim != 1 or not held.size:
            raise UploadError(f"{HELD_OUT_RECORDS} must be a list of ids, not empty")
        check_ids(headers, (HELD_OUT_RECORDS,), held.size, max_bytes)
    for name in _columns(headers):
        whose = held.size if held is not None and name.startswith(HELD_OUT) else rows
        if name.startswith(HELD_OUT) and held is None:
            raise UploadError(f"identities of held-out rows need {HELD_OUT_RECORDS}")
        try:
            check_kind(name.removeprefix(HELD_OUT).removeprefix(COLUMN))
        except IdentityError as error:
            raise UploadError(
                f"an array of identities must be named {COLUMN}KIND: {error.detail}"
            ) from None
        header = headers[name]
        if header.dtype != "uint8" or header.shape != (whose, WIDTH) or header.fortran:
            raise UploadError(
                f"{name} must be {WIDTH} bytes of digests for each row, by rows: values are "
                "hashed before they are sent, as `lethe model register` and "
                "`lethe client contribute` do"
            )


def add_identities(packed: Packed, archive: Archive, records: set[str]) -> int:
    """Add the digests of identities, and the ids of held-out rows that have some.

    Returns the number of these held-out rows. Raises UploadError if an id of one repeats, or is
    also that of a training row.
    """
    headers, held = archive.headers, list[str]()
    if HELD_OUT_RECORDS in headers:
        held = read_ids(archive, HELD_OUT_RECORDS)
        if len(set(held)) != len(held) or not records.isdisjoint(held):
            raise UploadError(f"{HELD_OUT_RECORDS} repeat an id: give each record its own id")
        packed.add_ids(HELD_OUT_RECORDS, held)
    for name in _columns(headers):
        packed.add(name, headers[name].dtype, headers[name], archive.blocks(name))
    return len(held)


def _columns(headers: Headers) -> list[str]:
    return sorted(name for name in headers if name.startswith((COLUMN, HELD_OUT_COLUMN)))
