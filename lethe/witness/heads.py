"""A witness's state for each log, in files that are durable before it signs.

heads/<SHA-256 of origin>.json     size, root and time of the last head, to be signed
heads/<SHA-256 of origin>.note     the last checkpoint with the cosignature lines of the answer
evidence/<SHA-256 of origin>-<…>   requests that the log signed and that contradict the head
unproven/<SHA-256 of origin>-<…>   requests with a checkpoint that no proof connects to the head

A crash between head and answer leaves a head without a delivered cosignature: the log asks
again and gets one. It never leaves an answer without its head.
"""

import fcntl
import os
from hashlib import sha256
from pathlib import Path

from lethe import canonical
from lethe.canonical import format_base64, parse_base64
from lethe.errors import LetheError
from lethe.files import write_durably
from lethe.log.checkpoint import Checkpoint
from lethe.log.cosignature import MAX_TIME
from lethe.log.tree import HASH_SIZE, MAX_SIZE
from lethe.records import dataclass

MOST_EVIDENCE = 16  # requests kept per log: one is proof enough
MOST_UNPROVEN = 256  # of different checkpoints: the newest replace the oldest


class StateError(LetheError):
    """The witness's state is missing, damaged or in use by another process."""

    slug, title, status = "witness-state", "The witness may not sign", 503


@dataclass(frozen=True, slots=True)
class Head:
    """The largest tree of a log that the witness cosigned; time in seconds since 1970."""

    origin: str
    size: int
    root: bytes
    time: int


class Heads:
    """The heads below one directory, which only one process at a time may use."""

    def __init__(self, directory: Path) -> None:
        self._heads, self._evidence = directory / "heads", directory / "evidence"
        self._unproven = directory / "unproven"
        if not self._heads.is_dir():
            raise StateError(
                f"{self._heads} is missing: a witness that forgot what it cosigned could "
                "cosign a fork. Restore it; if it is lost, retire this witness and make "
                "another with `lethe witness init`"
            )
        self._lock = os.open(self._heads, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise StateError(
                f"another process uses {self._heads}: end it before you start this one"
            ) from None

    @staticmethod
    def create(directory: Path) -> None:
        """Make the directories of a new witness."""
        (directory / "heads").mkdir(mode=0o700)
        (directory / "evidence").mkdir(mode=0o700)

    def close(self) -> None:
        """Release the directory for other processes."""
        os.close(self._lock)

    def read(self, origin: str) -> Head | None:
        """Return the last head, None if the log is new.

        Raises StateError if the file is damaged.
        """
        path = self._path(origin, "json")
        try:
            return _parse(path.read_bytes(), origin)
        except FileNotFoundError:
            return None
        except (LetheError, LookupError, TypeError, ValueError):
            raise StateError(
                f"{path} is damaged: restore it, or retire this witness for its log"
            ) from None

    def write(self, head: Head) -> None:
        """Store a head; it is durable when this returns, and may then be signed."""
        write_durably(self._path(head.origin, "json"), _format(head))

    def answered(self, origin: str, note: str) -> None:
        """Store the note of the last head with the answered lines."""
        write_durably(self._path(origin, "note"), note.encode(), mode=0o644)

    def note(self, origin_hash: str) -> bytes | None:
        """Return the last answered note of the log whose origin has this SHA-256 in hex."""
        try:
            return (self._heads / f"{origin_hash}.note").read_bytes()
        except FileNotFoundError:
            return None

    def keep(self, checkpoint: Checkpoint, request: bytes) -> None:
        """Store a request whose checkpoint contradicts the head; each checkpoint is kept once.

        Only the log can sign such a checkpoint, so nobody else fills the place.
        """
        path = self._evidence / _name(checkpoint)
        kept = list(self._evidence.glob(f"{origin_hash(checkpoint.origin)}-*"))
        if path not in kept and len(kept) < MOST_EVIDENCE:
            write_durably(path, request)

    def keep_unproven(self, checkpoint: Checkpoint, request: bytes) -> None:
        """Store a request whose proof is false; each checkpoint is kept once.

        Anybody can send an honest checkpoint with a false proof. But of a fork, the log has no
        other: compared with the log, its checkpoint shows which.
        """
        self._unproven.mkdir(mode=0o700, exist_ok=True)
        path = self._unproven / _name(checkpoint)
        kept = list(self._unproven.glob(f"{origin_hash(checkpoint.origin)}-*"))
        if path in kept:
            return
        if len(kept) >= MOST_UNPROVEN:
            min(kept, key=lambda one: one.stat().st_mtime_ns).unlink()
        write_durably(path, request)

    def resolve(self, checkpoint: Checkpoint) -> None:
        """Drop what was kept as unproven of a checkpoint that a proof connects to the head."""
        (self._unproven / _name(checkpoint)).unlink(missing_ok=True)

    def _path(self, origin: str, kind: str) -> Path:
        return self._heads / f"{origin_hash(origin)}.{kind}"


def _name(checkpoint: Checkpoint) -> str:
    # The whole digest: of a part, a log could make a fork and an honest tree, and `resolve` the
    # fork by growing.
    tree = sha256(b"%d %b" % (checkpoint.size, checkpoint.root)).hexdigest()
    return f"{origin_hash(checkpoint.origin)}-{tree}"


def origin_hash(origin: str) -> str:
    """Return SHA-256 of an origin in hex, the key under which its checkpoint is served."""
    return sha256(origin.encode()).hexdigest()


def _format(head: Head) -> bytes:
    value = {
        "origin": head.origin,
        "root": format_base64(head.root),
        "size": str(head.size),
        "time": str(head.time),
    }
    return canonical.encode(value) + b"\n"


def _parse(data: bytes, origin: str) -> Head:
    value = canonical.decode(data.removesuffix(b"\n"))
    head = Head(
        value["origin"], int(value["size"]), parse_base64(value["root"]), int(value["time"])
    )
    sound = 0 <= head.size <= MAX_SIZE and 0 < head.time <= MAX_TIME
    if not sound or len(head.root) != HASH_SIZE or head.origin != origin:
        raise ValueError("not a head")
    if _format(head) != data:
        raise ValueError("more than a head")
    return head
