"""What a check found: places and numbers, never an identifier."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

# What no process can see from where it runs. The officer guide says what to do about each.
ELSEWHERE = (
    "backups and snapshots of the database and of the data directory: let them expire, or "
    "restore only through the journal of erasures",
    "replicas, archived WAL and logical subscribers of the database",
    "logs of containers, of a reverse proxy and of the database server",
    "files that were exported or downloaded: evidence, score files, model files",
    "what clients and silos keep on their own machines",
)


@dataclass(slots=True)
class Findings:
    """Counts by place.

    leftovers: what must not be there. kept: what stays on purpose, and until when.
    remnants: ciphertext in space that the database has not used again. not_inspected: places
    that could not be read, and why.
    """

    leftovers: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    remnants: Counter[str] = field(default_factory=Counter)
    inspected: Counter[str] = field(default_factory=Counter)
    not_inspected: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is left that must not be there."""
        return not self.leftovers

    def as_json(self) -> dict[str, Any]:
        """Return all of it as a JSON object."""
        return {
            "result": "PASS" if self.ok else "FAIL",
            "leftovers": dict(sorted(self.leftovers.items())),
            "kept": dict(sorted(self.kept.items())),
            "remnants": dict(sorted(self.remnants.items())),
            "inspected": dict(sorted(self.inspected.items())),
            "not_inspected": self.not_inspected,
            "elsewhere": list(ELSEWHERE),
        }
