"""California's DROP: downloaded deletion lists, a ZIP of CSV files of hashes, and statuses.

Source: CalPrivacy, DROP technical specifications 1.2.0, privacy.ca.gov/drop-for-data-brokers.
A list is named <YYYYMMDD>_<DataBrokerId>_<DataType>.csv, with the header ID,Hash: a work item
of 12 characters of Base62, unique across the lists, and base64 of a SHA-256. The list Removed
has a third column, ListType, and names work items that consumers withdrew. A response has the
name of the list that it answers and the header Id,Status ("Status code reference"). Status 4,
opted out, concerns sales and sharing: Lethe sells nothing and never answers it.

Nothing is unpacked to a disk, and a list is read line by line, each of a bounded length.
"""

import binascii
import csv
import errno
import re
import zipfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from lethe.archives import most_entries
from lethe.catalogue import REFUSALS
from lethe.errors import LetheError
from lethe.records import dataclass

REMOVED = "Removed"
TYPES = ("Email", "Phone", "MAID", "CTVID", "NDZ", "NameVIN")
MAX_FILE = 256 * 2**20  # bytes of the ZIP
MAX_LISTS = 16
MAX_ROWS = 2_000_000  # of all lists: their work items are held in memory, 100 bytes each
MANY = f"the archive has more than {MAX_LISTS} files"
DAMAGED = "the file is not a ZIP archive, or it is damaged: download it again"
MAX_LINE = 100  # bytes; a row has 58, and one of Removed 66 at most
_NAME = re.compile(
    r"[0-9]{8}_[A-Za-z0-9]{1,32}_"
    rf"({'|'.join((*TYPES, REMOVED))})(_[A-Za-z0-9-]{{1,64}})?\.csv"
)
_ITEM = re.compile(r"[0-9A-Za-z]{12}")
_HASH_BYTES = 32


class DropError(LetheError):
    """A file that is not a DROP download, or a folder in use; the message says where."""

    slug, title, status = "drop-list", "Not a list of DROP", 422


@dataclass(frozen=True, slots=True)
class Row:
    """A work item: its id and the digest of a consumer's identifier."""

    item: str
    digest: bytes


class Lists:
    """The lists of a ZIP, by name. Create it with `checked`."""

    def __init__(self, archive: zipfile.ZipFile, types: Mapping[str, str]) -> None:
        self._archive = archive
        self.types = types  # of each list that has work items, by its name
        self.removed: frozenset[str] = frozenset()
        self.sizes: dict[str, int] = {}  # rows of each list

    def rows(self, name: str) -> Iterator[Row]:
        """Yield the work items of a list, without the withdrawn ones."""
        found = _rows(self._archive, name, self.types[name])
        return (row for row in found if row.item not in self.removed)


@contextmanager
def checked(path: Path) -> Iterator[Lists]:
    """Open a download, after checking every row of every list.

    Raises DropError: the file, a name, a header or a row is not in DROP's format; OSError: the
    file cannot be read.
    """
    with path.open("rb") as file, _opened(file) as archive:
        found = _types(archive)
        lists = Lists(archive, {name: kind for name, kind in found.items() if kind != REMOVED})
        lists.removed = frozenset(
            row.item
            for name, kind in found.items()
            if kind == REMOVED
            for row in _rows(archive, name, kind)
        )
        seen: set[str] = set()
        for name in lists.types:
            lists.sizes[name] = 0
            for line, row in enumerate(_rows(archive, name, lists.types[name]), 2):
                if row.item in seen:
                    raise _wrong(name, line, "the work item stands in the lists twice")
                if len(seen) == MAX_ROWS:
                    raise DropError(f"the lists have more than {MAX_ROWS} work items")
                seen.add(row.item)
                lists.sizes[name] += 1
        yield lists


@contextmanager
def _opened(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    if file.seek(0, 2) > MAX_FILE:
        raise DropError(f"a download has at most {MAX_FILE} bytes")
    if most_entries(file) > 2 * MAX_LISTS:  # packed data may look like an entry
        raise DropError(MANY)
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        EOFError,
        UnicodeDecodeError,  # a name that is marked as UTF-8, and is not
        zlib.error,
    ):
        raise DropError(DAMAGED) from None
    except OSError as error:
        if error.errno != errno.EINVAL:  # an offset before the file's start
            raise
        raise DropError(DAMAGED) from None


def _types(archive: zipfile.ZipFile) -> dict[str, str]:
    """Return the type of each list by its name."""
    members = archive.infolist()
    if len(members) > MAX_LISTS:
        raise DropError(MANY)
    found: dict[str, str] = {}
    for member in members:
        match = _NAME.fullmatch(member.filename)
        if match is None:
            raise DropError(
                "a file in the archive is not named <YYYYMMDD>_<DataBrokerId>_<DataType>.csv "
                f"with one of {', '.join((*TYPES, REMOVED))}"
            )
        if member.filename in found:
            raise DropError(f"{member.filename} is in the archive twice")
        # Other compression methods unpack in one piece, regardless of its size.
        if member.flag_bits & 1 or member.compress_type not in (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        ):
            raise DropError(f"{member.filename} is encrypted, or compressed in another way")
        found[member.filename] = match[1]
    if not found:
        raise DropError("the archive has no list: download it again")
    return found


def _rows(archive: zipfile.ZipFile, name: str, kind: str) -> Iterator[Row]:
    """Yield the rows of a list. Raises DropError with the line."""
    header = ["ID", "Hash", "ListType"] if kind == REMOVED else ["ID", "Hash"]
    with archive.open(name) as opened:
        number = 0
        while line := opened.readline(MAX_LINE + 1):
            number += 1
            if number > MAX_ROWS + 1:
                raise _wrong(name, number, f"a list has at most {MAX_ROWS} rows")
            if len(line) > MAX_LINE:
                raise _wrong(name, number, f"a row has at most {MAX_LINE} bytes")
            cells = _cells(
                name, number, line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"")
            )
            if number == 1:
                if cells != header:
                    raise _wrong(name, 1, f"the header must be {','.join(header)}")
                continue
            if len(cells) != len(header) or _ITEM.fullmatch(cells[0]) is None:
                raise _wrong(
                    name,
                    number,
                    f"a row must have {len(header)} cells, and an ID 12 letters and digits",
                )
            if header[2:] and cells[2] not in TYPES:
                raise _wrong(name, number, f"ListType must be one of {', '.join(TYPES)}")
            yield Row(cells[0], _digest(name, number, cells[1]))
    if number == 0:
        raise _wrong(name, 1, f"the header must be {','.join(header)}")


def _cells(name: str, number: int, line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode("ascii").rstrip("\r\n")], strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        raise _wrong(name, number, "it is not a row of CSV in ASCII") from None


def _digest(name: str, number: int, text: str) -> bytes:
    try:
        digest = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        digest = b""
    if len(digest) != _HASH_BYTES or b64encode(digest).decode() != text:
        raise _wrong(name, number, "Hash is not base64 of a SHA-256")
    return digest


def _wrong(name: str, line: int, what: str) -> DropError:
    return DropError(f"{name}, line {line}: {what}; nothing was submitted")


EXEMPTED, DELETED, NOT_FOUND = 2, 3, 5
HEADER = "Id,Status\n"
# Refused because of the requester, not because the information is exempt.
_NO_EXEMPTION = ("not-verified", "unfounded")
_EXEMPTIONS = frozenset(
    text for code, text in REFUSALS["ccpa"].items() if code not in _NO_EXEMPTION
)
SOURCE = "held out at its source"


def status_of_found(found: list[Mapping[str, Any]]) -> int | None:
    """Return the status of a person with these findings; None: a case must be opened."""
    if any(one["records"] or one["held_out"] or one.get("uncertified") for one in found):
        return None
    return DELETED if any(one["erased"] for one in found) else NOT_FOUND


def status_of_case(case: Mapping[str, Any]) -> tuple[int | None, str]:
    """Return the status of a case, or None and the reason for waiting, in words."""
    exempt = {
        item["model"]
        for item in case["timeline"]
        if item["event"] == "request.refused" and item["detail"].get("reason") in _EXEMPTIONS
    }
    seen = set()
    for part in case["parts"]:
        outcome = part["outcome"]
        if outcome in ("in progress", "failed", "withdrawn"):
            return None, outcome
        if outcome == "refused":
            if part["model"] not in exempt:
                return None, outcome
            seen.add(EXEMPTED)
        elif outcome == "held out only" and not part["held_out_removed"]:
            return None, SOURCE
        elif outcome != "nothing found":
            seen.add(DELETED)
    # "Match found and non-exempt personal information was deleted", regardless of exemptions.
    status = DELETED if DELETED in seen else EXEMPTED if EXEMPTED in seen else NOT_FOUND
    return status, ""
