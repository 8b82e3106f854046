"""How many calls a minute each key and token may make: one caller leaves room for the others.

Counted once the caller is known and the call is no repetition of one that somebody saw: a
stranger uses up nobody's rate. In the memory of each API process, where nobody who writes the
database can reset it: with four processes the rate is four times as high, and a restart begins
anew.
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

    most: calls a minute of each, which may come at once; 0: as many as they like.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock, self._lock = most, clock, Lock()
        # When the calls of each until now would all have been due, one after the other.
        self._due: OrderedDict[str, float] = OrderedDict()

    def take(self, caller: str) -> None:
        """Count one call. Raises RateLimitError, and counts none, if it is one too many."""
        with self._lock:
            self._check(caller)
            self._count(caller)

    def check(self, caller: str) -> None:
        """Count nothing. Raises RateLimitError if a call now were one too many."""
        with self._lock:
            self._check(caller)

    def count(self, caller: str) -> None:
        """Count a call that `check` let in; several at once may be more than the rate."""
        with self._lock:
            self._count(caller)

    def _check(self, caller: str) -> None:
        if self._most == 0:
            return
        now = self._clock()
        wait = self._due.get(caller, now) + MINUTE / self._most - now - MINUTE
        if wait > 1e-9:  # of rounding
            raise RateLimitError(self._most, ceil(wait))

    def _count(self, caller: str) -> None:
        if self._most == 0:
            return
        now = self._clock()
        self._due[caller] = max(now, self._due.get(caller, now)) + MINUTE / self._most
        self._due.move_to_end(caller)
        if len(self._due) > MOST_CALLERS:
            self._due.popitem(last=False)
