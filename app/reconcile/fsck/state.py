"""What fsck verified last, so that the next call reads what came since.

The file has the right edge of the tree that was computed: what the tree grows from. Its MAC is
under a key that `entries.key` gives, so whoever writes the database, or the file, but has no
keys cannot make fsck leave out what it never verified.
"""

from dataclasses import dataclass
from datetime import datetime
from hmac import compare_digest, digest
from pathlib import Path
from typing import Any

from app.ledger.entry_macs import EntryKey
from lethe import canonical
from lethe.errors import LetheError
from lethe.files import write_durably
from lethe.log.peaks import Peaks
from lethe.log.spelling import format_base64, parse_base64

LABEL = "lethe-fsck-state-1"


class StateError(LetheError):
    """The state file is not one that fsck wrote for this log."""

    slug = "fsck-state"
    title = "The state file is refused"


@dataclass(frozen=True, slots=True)
class Verified:
    """A log in which fsck found nothing: its signed tree, its checkpoints, when it was read.

    files: whether stored files were opened too.
    """

    peaks: Peaks
    checkpoints: int
    at: datetime
    files: bool

    @property
    def size(self) -> int:
        """How many entries were verified."""
        return self.peaks.size


def read_state(path: Path, key: EntryKey) -> Verified | None:
    """Return what the file says, None if there is none.

    Raises:
        StateError: It was changed, is damaged, or is of another log.
        OSError: It cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        found = canonical.decode(data.removesuffix(b"\n"))
        if not compare_digest(found.pop("mac"), _mac(key, found)):
            raise ValueError("another MAC")
        size = int(found["size"])
        hashes = iter([parse_base64(one) for one in found["peaks"]])
        return Verified(
            Peaks.of(size, lambda _level, _index: next(hashes)),
            int(found["checkpoints"]),
            datetime.fromisoformat(found["at"]),
            found["files"] == "opened",
        )
    except (canonical.NotCanonicalError, LookupError, TypeError, ValueError, AttributeError):
        raise StateError(
            f"{path} was not written by fsck of this log, or was changed: find out by whom, "
            "and remove it"
        ) from None


def write_state(path: Path, key: EntryKey, verified: Verified) -> None:
    """Keep what was verified, durably. Raises OSError."""
    content: dict[str, Any] = {
        "at": verified.at.isoformat(),
        "checkpoints": str(verified.checkpoints),
        "files": "opened" if verified.files else "not opened",
        "peaks": [format_base64(one) for one in verified.peaks.nodes().values()],
        "size": str(verified.size),
    }
    write_durably(path, canonical.encode({**content, "mac": _mac(key, content)}) + b"\n")


def _mac(key: EntryKey, content: dict[str, Any]) -> str:
    return digest(key.derive(LABEL), canonical.encode(content), "sha256").hex()
