"""The state of the last fsck, so that the next one reads only what was added.

The file has the right edge of the computed tree, from which the tree can grow. It has a MAC
under a key derived from `entries.key`: write access to the database or the file, without the
keys, cannot make fsck skip anything unverified.
"""

from dataclasses import dataclass
from datetime import datetime
from hmac import compare_digest, digest
from pathlib import Path
from typing import Any

from app.ledger.entry_macs import EntryKey
from lethe import canonical
from lethe.canonical import format_base64, parse_base64
from lethe.errors import LetheError
from lethe.files import write_durably
from lethe.log.tree import Peaks

LABEL = "lethe-fsck-state-1"


class StateError(LetheError):
    """The state file is not one that fsck wrote for this log."""

    slug, title = "fsck-state", "The state file is refused"


@dataclass(frozen=True, slots=True)
class Verified:
    """A log without findings: its signed tree, its number of checkpoints, and the time.

    files: whether stored files were opened too.
    """

    peaks: Peaks
    checkpoints: int
    at: datetime
    files: bool

    @property
    def size(self) -> int:
        """The number of verified entries."""
        return self.peaks.size


def read_state(path: Path, key: EntryKey) -> Verified | None:
    """Return the stored state, None if there is no file.

    Raises StateError: the file was changed, is damaged, or belongs to another log; OSError: the
    file cannot be read.
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
    """Write the state durably. Raises OSError."""
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
