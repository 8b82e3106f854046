"""What grows though only the log should: the second and the last quarter of a soak compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

# What certificates, receipts and their proofs rest on stays for good. Its growth by log entry
# must stay the same; anything else, also what is new tomorrow, must not grow at all.
LOGGED = {
    "database MiB",
    "data/lethe.db MiB",
    "data/keys MiB",  # the erasure journal
    *(
        f"rows of {table}"
        for table in (
            "artifacts", "certificates", "contributions", "erasure_requests", "jobs",
            "key_events", "log_checkpoints", "log_entries", "log_nodes", "model_versions",
            "models", "request_events", "requester_keys", "retention_removals", "tombstones",
            "verifications",
        )
    ),
}  # fmt: skip
QUARTER = 4
# What a value may be above that of the second quarter: relative, and of its own unit.
# The first kind that a name has decides.
SHARE = 0.10
LEAST = {"memory MiB": 8.0, "MiB": 1.0, "open files": 3.0, "files": 20.0, "rows": 20.0}
MORE = 3.0  # threads, connections, keys
PACE = 0.25  # by which the growth by entry of what the log needs may rise


@dataclass(frozen=True, slots=True)
class Sample:
    """What was held at a time. seconds: since the load began; entries: of the log."""

    seconds: float
    entries: int
    held: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Trend:
    """One value in the second and the last quarter: means, and growth by a thousand entries."""

    name: str
    before: float
    after: float
    pace_before: float
    pace_after: float

    @property
    def with_log(self) -> bool:
        """Whether it may grow as the log does."""
        return self.name in LOGGED

    @property
    def grown(self) -> bool:
        """Whether it grew by more than its kind may."""
        if self.with_log:
            return self.pace_after > (1 + PACE) * self.pace_before + 1
        least = next((most for kind, most in LEAST.items() if kind in self.name), MORE)
        return self.after > (1 + SHARE) * self.before + least


def trends(samples: Sequence[Sample]) -> list[Trend]:
    """Return the trend of each value that both quarters have.

    Raises ValueError for fewer than eight samples: a quarter of them shows no growth.
    """
    if len(samples) < 2 * QUARTER:
        raise ValueError(f"{len(samples)} samples show no growth: at least {2 * QUARTER}")
    size = len(samples) // QUARTER
    second, last = samples[size : 2 * size], samples[-size:]
    names = sorted({name for one in (*second, *last) for name in one.held})
    return [
        Trend(
            name, _mean(name, second), _mean(name, last), _pace(name, second), _pace(name, last)
        )
        for name in names
    ]


def _mean(name: str, samples: Sequence[Sample]) -> float:
    return mean(one.held.get(name, 0.0) for one in samples)


def _pace(name: str, samples: Sequence[Sample]) -> float:
    first, last = samples[0], samples[-1]
    entries = max(1, last.entries - first.entries)
    return 1000 * (last.held.get(name, 0.0) - first.held.get(name, 0.0)) / entries
