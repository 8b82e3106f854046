"""Heartbeats of followers: how far each follower's directory may lag behind the database.

<data_dir>/followers/NAME.json is renewed each round; NAME is derived from the directory. A
follower that ends leaves its file and is reported as late; to retire it, remove the file.
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from app.settings import Settings
from lethe.files import write_durably
from models.database.types import utcnow

FOLDER = "followers"
ROUNDS, PATIENCE = 3, timedelta(seconds=30)  # a follower is late after this delay


@dataclass(frozen=True, slots=True)
class Beat:
    """`directory` has all commits before `at` (ISO 8601). every: seconds between rounds."""

    directory: str
    at: str
    every: float
    path: Path = field(default=Path(), compare=False)  # of this file

    @property
    def lag(self) -> timedelta:
        """The maximum age of the directory's state."""
        return utcnow() - datetime.fromisoformat(self.at)

    @property
    def is_late(self) -> bool:
        """Whether the follower has missed its interval."""
        return self.lag > ROUNDS * timedelta(seconds=self.every) + PATIENCE


def write_beat(settings: Settings, beat: Beat) -> None:
    """Record a round of the follower into `beat.directory`."""
    path = _path(settings, Path(beat.directory))
    path.parent.mkdir(mode=0o700, exist_ok=True)
    known = {"directory": beat.directory, "at": beat.at, "every": beat.every}
    write_durably(path, json.dumps(known).encode() + b"\n")


def read_beats(settings: Settings) -> list[Beat]:
    """Return the last round of each follower; an unreadable file counts as late."""
    found = []
    for path in sorted((settings.data_dir / FOLDER).glob("*.json")):
        try:
            known = json.loads(path.read_bytes())
            at = datetime.fromisoformat(known["at"]).astimezone(UTC).isoformat()
            found.append(Beat(str(known["directory"]), at, float(known["every"]), path))
        except FileNotFoundError:
            continue
        except (ValueError, LookupError, TypeError):
            never = datetime.fromtimestamp(0, UTC).isoformat()
            found.append(Beat("an unknown directory", never, 1, path))
    return found


def _path(settings: Settings, directory: Path) -> Path:
    name = sha256(str(directory.absolute()).encode()).hexdigest()[:16]
    return settings.data_dir / FOLDER / f"{name}.json"
