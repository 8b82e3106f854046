"""Counters and histograms of one process, for `app.metrics`.

Every submission and every start counts something, so counting is a few lines here, and
`prometheus_client`, which takes 70 ms to import, is loaded by the first scrape. Totals over
all processes come from the database.

Labels have few values, all defined in the code: problem types, operations, stages. A process
says at its start which of them its counters may get (`expect`): Prometheus sees no increase in
a series that begins with its first event.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter

# Upper bounds in seconds; the lock is waited for at most WAIT_S = 15.
WAITS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)
# A stage of a job takes from milliseconds (a ridge head) to hours (a training).
STAGE_TIMES = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0)


class Counter:
    """Events counted since the process started, by the value of one label."""

    def __init__(self, name: str, meaning: str, label: str) -> None:
        self.name, self.meaning, self.label = name, meaning, label
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def expect(self, values: Iterable[str]) -> None:
        """Have the counter show 0 for what has not happened yet."""
        with self._lock:
            for value in values:
                self._counts.setdefault(value, 0)

    def add(self, value: str) -> None:
        """Count one event."""
        with self._lock:
            self._counts[value] = self._counts.get(value, 0) + 1

    def read(self) -> dict[str, int]:
        """Return the counts so far by label."""
        with self._lock:
            return dict(self._counts)


class Histogram:
    """Durations in seconds since the process started, by the value of one label if any."""

    def __init__(
        self, name: str, meaning: str, bounds: tuple[float, ...], label: str = ""
    ) -> None:
        self.name, self.meaning, self.label = name, meaning, label
        self.bounds = bounds
        self._lock = threading.Lock()
        self._found: dict[str, tuple[list[int], float]] = {}
        if not label:
            self.expect([""])

    def expect(self, values: Iterable[str]) -> None:
        """Have the histogram show empty buckets for what has not happened yet."""
        with self._lock:
            for value in values:
                self._found.setdefault(value, ([0] * (len(self.bounds) + 1), 0.0))

    def observe(self, seconds: float, value: str = "") -> None:
        """Add one duration."""
        at = bisect_left(self.bounds, seconds)
        with self._lock:
            counts, total = self._found.get(value) or ([0] * (len(self.bounds) + 1), 0.0)
            counts[at] += 1
            self._found[value] = counts, total + seconds

    @contextmanager
    def timed(self, value: str = "") -> Iterator[None]:
        """Add the duration of the block, also if it raises."""
        begun = perf_counter()
        try:
            yield
        finally:
            self.observe(perf_counter() - begun, value)

    def read(self) -> dict[str, tuple[tuple[int, ...], float]]:
        """Return, by label, the count of each bucket (the last is unbounded) and the sum."""
        with self._lock:
            return {
                value: (tuple(counts), total) for value, (counts, total) in self._found.items()
            }


CALLS = Histogram(
    "lethe_call_seconds", "Time from a call's head to its answer's end.", WAITS, "operation"
)
REFUSED = Counter("lethe_refused", "Calls answered with a problem, by its type.", "problem")
LOCK_WAIT = Histogram(
    "lethe_log_lock_wait_seconds", "Wait for the log's lock, before each transaction.", WAITS
)
STAGES = Histogram(
    "lethe_stage_seconds", "Time a worker held a job, by its stage.", STAGE_TIMES, "stage"
)
STAGE_ERRORS = Counter(
    "lethe_stage_errors", "Tries of a job's stage that ended in an error.", "stage"
)
COUNTERS = (REFUSED, STAGE_ERRORS)
HISTOGRAMS = (CALLS, LOCK_WAIT, STAGES)
