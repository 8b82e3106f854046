"""A MAC on each stored entry, so that the log's key signs only what this installation wrote.

Anyone with write access to the database can append rows to the log. The signing guard covers
the rows that were signed; the origin of later rows can only be proved with a key outside the
database: `entries.key`. It authenticates rows to the sequencer and to fsck. Leaves do not
contain the MAC, so mirrors and auditors need neither. The key is never replaced, because
entries never change.
"""

import base64
import secrets
from dataclasses import dataclass, replace
from datetime import date
from hmac import compare_digest, digest

from lethe import canonical
from lethe.errors import LetheError
from lethe.log.entries import Leaf, parse_leaf
from models import LogEntry

KEY_SIZE = 32  # bytes


class KeyMissingError(LetheError):
    """A key file is missing, or its content does not match its name."""

    slug, title, status = "key-missing", "A key is missing", 503


@dataclass(frozen=True, slots=True)
class EntryRow:
    """The columns of a `LogEntry` to write."""

    index: int
    leaf: bytes
    kind: str
    event: str | None
    ref: str | None
    day: str
    mac: bytes = b""


class EntryKey:
    """The key of one log's entries. Never printed, logged or stored in the database."""

    def __init__(self, key: bytes, origin: str) -> None:
        assert len(key) == KEY_SIZE
        self._key, self._origin = key, origin

    def same_as(self, other: "EntryKey") -> bool:
        """Return whether both are the same key of the same log."""
        return self._origin == other._origin and compare_digest(self._key, other._key)

    def derive(self, label: str) -> bytes:
        """Return a 32-byte HMAC key for one label; it reveals nothing about this key."""
        return digest(self._key, canonical.encode([label, self._origin]), "sha256")

    def row(self, index: int, leaf: bytes, day: date, said: Leaf | None = None) -> EntryRow:
        """Return the row of a leaf at its index; `day` is used if the leaf has none.

        said: the parsed leaf, if the caller has just formatted it.

        Raises EntryError: not an entry of a kind this log holds.
        """
        said = said or parse_leaf(leaf)
        on = (said.day or day).isoformat()
        entry = EntryRow(index, leaf, said.kind, said.event, said.ref, on)
        return replace(entry, mac=self.mac(entry))

    def mac(self, entry: LogEntry | EntryRow) -> bytes:
        """Return HMAC-SHA256 over the log's name, the entry's index and all its columns.

        The message is RFC 8785 JSON, so distinct entries have distinct messages. `mac` itself
        is excluded and may be unset.
        """
        said = ["lethe-entry-1", self._origin, str(entry.index), bytes(entry.leaf).hex()]
        columns = [entry.kind, entry.event, entry.ref, entry.day]
        return digest(self._key, canonical.encode([*said, *columns]), "sha256")

    def is_authentic(self, entry: LogEntry | EntryRow) -> bool:
        """Return whether the entry was written under this key, at this index of this log."""
        return compare_digest(bytes(entry.mac), self.mac(entry))


def new_entry_key() -> bytes:
    """Return the content of a key file with a new random key: one line of base64."""
    return base64.b64encode(secrets.token_bytes(KEY_SIZE)) + b"\n"


def parse_entry_key(data: bytes, origin: str) -> EntryKey:
    """Return the key in a file's content, for the log named `origin`.

    Raises ValueError: the content is not in the format of `new_entry_key`.
    """
    key = base64.b64decode(data.removesuffix(b"\n"), validate=True)
    if len(key) != KEY_SIZE or base64.b64encode(key) + b"\n" != data:
        raise ValueError("not one line of base64 of 32 bytes")
    return EntryKey(key, origin)
