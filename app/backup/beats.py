"""What each follower did last: how far its directory may be behind the database.

<data_dir>/followers/NAME.json, renewed each round; NAME is of the directory. A follower that
ended leaves its file, and so is missed; whoever gives one up removes it.
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
ROUNDS, PATIENCE = 3, timedelta(seconds=30)  # of delay, before a follower is late


@dataclass(frozen=True, slots=True)
class Beat:
    """What was committed before `at` (ISO 8601) is there; a round begins each `every` s."""

    directory: str
    at: str
    every: float
    path: Path = field(default=Path(), compare=False)  # of this file

    @property
    def lag(self) -> timedelta:
        """How old the state is that the directory surely has."""
        return utcnow() - datetime.fromisoformat(self.at)

    @property
    def is_late(self) -> bool:
        """Whether the follower does not keep its interval."""
        return self.lag > ROUNDS * timedelta(seconds=self.every) + PATIENCE


def write_beat(settings: Settings, beat: Beat) -> None:
    """Remember a round of the follower into `beat.directory`."""
    path = _path(settings, Path(beat.directory))
    path.parent.mkdir(mode=0o700, exist_ok=True)
    known = {"directory": beat.directory, "at": beat.at, "every": beat.every}
    write_durably(path, json.dumps(known).encode() + b"\n")


def read_beats(settings: Settings) -> list[Beat]:
    """Return the last round of each follower; a file that cannot be read counts as late."""
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
