"""Limits the calls a minute of each key and token, so that one caller leaves room for others.

A call is counted once the caller is authenticated and the call is not a replay, so strangers
cannot use up a caller's rate. Counts are in the memory of each API process, so write access to
the database cannot reset them: with four processes the rate is four times as high, and a
restart resets it.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from threading import Lock

from app.problems import RateLimitError

MINUTE = 60.0
MOST_CALLERS = 20_000  # in memory, about 200 bytes each


class Rates:
    """The callers of one process, by the generic cell rate algorithm (ITU-T I.371, annex A).

    most: calls a minute of each, which may come at once; 0: unlimited.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock, self._lock = most, clock, Lock()
        # The theoretical arrival time of each caller's next call.
        self._due: OrderedDict[str, float] = OrderedDict()

    def take(self, caller: str) -> None:
        """Count one call. Raises RateLimitError, and counts none, if it exceeds the rate."""
        with self._lock:
            self._check(caller)
            self._count(caller)

    def check(self, caller: str) -> None:
        """Raise RateLimitError if a call now would exceed the rate; count nothing."""
        with self._lock:
            self._check(caller)

    def count(self, caller: str) -> None:
        """Count a call that `check` allowed; concurrent ones may exceed the rate."""
        with self._lock:
            self._count(caller)

    def _check(self, caller: str) -> None:
        if self._most == 0:
            return
        now = self._clock()
        wait = self._due.get(caller, now) + MINUTE / self._most - now - MINUTE
        if wait > 1e-9:  # rounding
            raise RateLimitError(self._most, ceil(wait))

    def _count(self, caller: str) -> None:
        if self._most == 0:
            return
        now = self._clock()
        self._due[caller] = max(now, self._due.get(caller, now)) + MINUTE / self._most
        self._due.move_to_end(caller)
        if len(self._due) > MOST_CALLERS:
            self._due.popitem(last=False)
