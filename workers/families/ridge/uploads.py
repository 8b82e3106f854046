"""Parse an upload for a ridge head: rows, quantised here, or a client's statistics."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from workers.arrays import Codes, Rows
from workers.errors import RefusedError
from workers.families.ridge.removal import check_definite
from workers.families.ridge.stored import MessageBlock, RowBlock
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.statistics.message import Batch, check_message
from workers.methods.ridge.statistics.quantiser import Quantiser
from workers.secure_sum.wire import unpack_message
from workers.updates.update import Owner, ParsedUpload

BLOCK = 1 << 20  # bytes of an array read at a time


@dataclass(frozen=True, slots=True, eq=False)
class ParsedRidgeUpload(ParsedUpload):
    """batch: the blocks together, as the method learns them. rows: all of them as one block."""

    batch: Batch
    rows: RowBlock | None = None

    def salts(self) -> NDArray[np.uint8]:
        """Return the salts stored with the rows; new ones for rows that were not sent."""
        # `super` does not work in a dataclass with slots.
        return ParsedUpload.salts(self) if self.rows is None else self.rows.id_salts


def parse_upload(
    file: BinaryIO, config: RidgeConfig, number: int, *, remote: bool
) -> ParsedRidgeUpload:
    """Parse an upload of rows; `remote` if its rows stay with its clients.

    Rows are read in blocks: only their codes are in memory, in the order of their owners.
    number: of the version that learns it.

    Raises RefusedError if the rows or statistics are unusable, or no rows have such statistics.
    """
    if remote:
        return _of_statistics(file.read(), config)
    try:
        with zipfile.ZipFile(file) as archive:
            return _of_rows(archive, config, number)
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
        raise RefusedError("the stored upload cannot be read: send it again") from None


def _of_statistics(data: bytes, config: RidgeConfig) -> ParsedRidgeUpload:
    envelope = unpack_message(data, bits=config.bits)
    check_message(envelope.message, bits=config.bits)
    if envelope.message.residual == 0:
        check_definite(envelope.message.statistics, config)
    block = MessageBlock(envelope.records, envelope.message)
    owner = envelope.client, envelope.subject
    return ParsedRidgeUpload({owner: block}, 0, envelope.message)


def _of_rows(archive: zipfile.ZipFile, config: RidgeConfig, number: int) -> ParsedRidgeUpload:
    owners, owned = _owners(archive)
    order = np.argsort(owned, kind="stable")  # by owner, for each in the order of the upload
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    codes, saturated = _codes(archive, config.quantiser, places)
    labels = np.concatenate([np.empty(0, np.int64), *_blocks(archive, "labels")])
    ids = [one for block in _blocks(archive, "records") for one in block.tolist()]
    if not len(labels) == len(ids) == len(order):
        raise ValueError("arrays of different lengths")
    records = [ids[place] for place in order.tolist()]
    whole = RowBlock.fresh(records, Rows(codes, labels[order]), number)
    ends = np.cumsum(np.bincount(owned, minlength=len(owners))).tolist()
    blocks = {
        owner: whole.part(start, stop)
        for owner, start, stop in zip(owners, [0, *ends], ends, strict=False)
    }
    return ParsedRidgeUpload(blocks, saturated, whole.rows, whole)


def _owners(archive: zipfile.ZipFile) -> tuple[list[Owner], NDArray[np.int32]]:
    """Return the owners in the order of their first rows, and the owner's index of each row."""
    known: dict[Owner, int] = {}
    owned: list[NDArray[np.int32]] = [np.empty(0, np.int32)]
    clients = (one for block in _blocks(archive, "clients") for one in block.tolist())
    for block in _blocks(archive, "subjects"):
        # The subjects first: `zip` then does not consume a client beyond the last subject.
        pairs = ((client, subject) for subject, client in zip(block.tolist(), clients))  # noqa: B905
        found = [known.setdefault(pair, len(known)) for pair in pairs]
        owned.append(np.array(found, dtype=np.int32))
    if next(clients, None) is not None:
        raise ValueError("more clients than subjects")
    return list(known), np.concatenate(owned)


def _codes(
    archive: zipfile.ZipFile, quantiser: Quantiser, places: NDArray[np.int64]
) -> tuple[Codes, int]:
    """Return the codes of the features, row i in `places[i]`, and how many were clipped."""
    with _array(archive, "features") as (stream, shape, dtype, by_columns):
        if len(shape) != 2 or shape[0] != len(places):
            raise ValueError("features of another shape than the ids")
        rows, columns = shape
        codes: Codes = np.empty(shape, dtype=np.int16)
        saturated, filled = 0, 0
        if by_columns:
            for exponent, block in zip(
                quantiser.exponents, _read(stream, dtype, rows), strict=True
            ):
                one = Quantiser((exponent,), quantiser.bits)
                found, clipped = one.quantise(block.reshape(-1, 1))
                codes[places, filled // rows] = found[:, 0]
                saturated, filled = saturated + clipped, filled + found.size
        else:
            lines = max(1, BLOCK // (columns * dtype.itemsize))
            for block in _read(stream, dtype, lines * columns):
                found, clipped = quantiser.quantise(block.reshape(-1, columns))
                codes[places[filled // columns :][: len(found)]] = found
                saturated, filled = saturated + clipped, filled + found.size
        if filled != codes.size:
            raise ValueError("fewer features than the header says")
    return codes, saturated


def _blocks(archive: zipfile.ZipFile, name: str) -> Iterator[NDArray[Any]]:
    """Yield the elements of a vector, about BLOCK bytes of them at a time."""
    with _array(archive, name) as (stream, shape, dtype, _):
        if len(shape) != 1:
            raise ValueError("not one value for each row")
        left = shape[0]
        for block in _read(stream, dtype, BLOCK // dtype.itemsize):
            left -= len(block)
            yield block
    if left:
        raise ValueError("fewer values than the header says")


@contextmanager
def _array(
    archive: zipfile.ZipFile, name: str
) -> Iterator[tuple[IO[bytes], tuple[int, ...], np.dtype[Any], bool]]:
    """Open an array: its data, shape and type, and whether it is stored by columns."""
    with archive.open(f"{name}.npy") as stream:
        npy.read_magic(stream)
        shape, fortran, dtype = npy.read_array_header_1_0(stream)
        yield stream, shape, dtype, fortran


def _read(stream: IO[bytes], dtype: np.dtype[Any], count: int) -> Iterator[NDArray[Any]]:
    """Yield elements in chunks of `count`."""
    while data := stream.read(count * dtype.itemsize):
        yield np.frombuffer(data, dtype)
