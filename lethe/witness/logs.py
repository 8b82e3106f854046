"""The logs that a witness knows: a file with one vkey per line, reread when it changes.

A log announces each of its keys under the previous one, and its trust root proves that. So a
witness that knows one key of a log learns the next from the log itself, during and after the
overlap, and drops the keys that the log has revoked.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from lethe.errors import LetheError
from lethe.files import alone_in, write_durably
from lethe.log.log_keys import LogKeys
from lethe.log.note import NoteError, NoteVerifier, parse_log_vkey
from lethe.records import dataclass

LOGS = "logs"
HEAD = "# vkeys of the logs that this witness cosigns, one a line"

log = logging.getLogger(__name__)


class HomeError(LetheError):
    """A directory that is not a witness's, or already is one."""

    slug, title, status = "witness-directory", "Not a witness's directory", 409


@dataclass(frozen=True, slots=True)
class Followed:
    """The effect of a trust root: vkeys of one log that were added, and that were removed."""

    origin: str
    added: tuple[str, ...]
    removed: tuple[str, ...]


class LogList:
    """The keys in a witness's file; thread-safe."""

    def __init__(self, directory: Path) -> None:
        """Read the file. Raises HomeError if it is missing or malformed."""
        self._path = directory / LOGS
        self._lock = threading.Lock()
        self._seen = self._state()
        self._keys = _keys(self._path)

    def keys(self, origin: str) -> Sequence[NoteVerifier]:
        """Return the keys of a log, empty if it is not in the file.

        If the file cannot be read, the previous keys stay, and the error is logged.
        """
        with self._lock:
            if (state := self._state()) != self._seen:
                self._seen = state
                try:
                    self._keys = _keys(self._path)
                except HomeError as error:
                    log.error("the list of logs stays as it was: %s", error.detail)
            return [key for key in self._keys if key.name == origin]

    def _state(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns


def write(directory: Path, logs: Sequence[NoteVerifier]) -> None:
    """Write the file of a new witness."""
    _write(directory / LOGS, [HEAD, *(one.vkey for one in logs)])


def follow(directory: Path, lead: Callable[[NoteVerifier | None], LogKeys]) -> Followed:
    """Add the keys that a log's trust root proves, and remove those that it revokes.

    lead: returns the log's keys as the trust root proves them to a holder of the given key, or
    as it lists them for None. Only the last key of the log in the file may change anything: an
    older key, which may be revoked soon, is not enough. Other logs' lines stay.

    Raises HomeError: the file is missing or malformed, has no key of this log, or none would
    stay, or another command changes it; LetheError: what `lead` raises.
    """
    path = directory / LOGS
    _keys(path)  # otherwise it is no witness's directory
    try:
        with alone_in(directory):
            return _follow(path, lead)
    except BlockingIOError:
        raise HomeError(f"another command changes {path}: run this again") from None


def _follow(path: Path, lead: Callable[[NoteVerifier | None], LogKeys]) -> Followed:
    origin = lead(None).name
    listed = [key for key in _keys(path) if key.name == origin]
    if not listed:
        raise HomeError(f"{path} has no key of the log {origin}: add its vkey there first")
    revoked, later = _led(listed, lead)
    kept = [key.vkey for key in listed if key.vkey not in revoked]
    if not kept and not later:
        raise HomeError("all keys of the log that lead here are revoked: give a later one")
    lines, last = path.read_text("utf-8").splitlines(), listed[-1].vkey
    changed: list[str] = []
    for line in lines:
        if line not in revoked:
            changed.append(line)
        if line == last:
            changed += later
    if changed != lines:
        _write(path, changed)
    gone = tuple(key.vkey for key in listed if key.vkey in revoked)
    return Followed(origin, tuple(later), gone)


def _led(
    listed: Sequence[NoteVerifier], lead: Callable[[NoteVerifier | None], LogKeys]
) -> tuple[set[str], list[str]]:
    """Return the revoked vkeys, and the new ones that the last listed key leads to.

    Just after a rotation only the older key has signed the trust root: that changes nothing.
    """
    refused: LetheError | None = None
    for key in reversed(listed):
        try:
            found = lead(key)
        except LetheError as error:
            refused = refused or error
            continue
        later = [
            one.verifier.vkey
            for one in found.keys[found.verifiers.index(key) + 1 :]
            if one.revoked is None and one.verifier not in listed
        ]
        if refused is None:
            if later and not all(one in found.verifiers for one in listed):
                raise HomeError(
                    f"what {key.key_id.hex()} leads to lacks a key of the log that is listed "
                    "here: it, or the list, is of another history, as a stolen key signs one"
                )
            gone = [one for one in found.keys if one.revoked is not None]
            return {one.verifier.vkey for one in gone}, later
        if not later:
            return set(), []
        break
    assert refused is not None, "a list without keys"
    raise refused


def _write(path: Path, lines: Sequence[str]) -> None:
    write_durably(path, "".join(f"{line}\n" for line in lines).encode())


def _keys(path: Path) -> list[NoteVerifier]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (FileNotFoundError, ValueError):
        raise HomeError(f"{path} is missing or not text: restore it") from None
    logs = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            logs.append(parse_log_vkey(line))
        except NoteError as error:
            raise HomeError(f"line {number} of {path}: {error.detail}") from None
    return logs
