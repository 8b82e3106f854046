"""Limits the calls a minute of each key and token, so that one caller leaves room for others.

A call is counted once the caller is authenticated and the call is not a replay, so strangers
cannot use up a caller's rate. Counts are in the memory of each API process, so write access to
the database cannot reset them: with four processes the rate is four times as high, and a
restart resets it.

Answers to counted calls say what is left, in the fields of
draft-ietf-httpapi-ratelimit-headers-11. A caller of whom no minute counts more calls than the
policy says is never refused, however many processes there are. What is left is that of the
process that answers: another one may take more, or fewer.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from math import ceil, floor
from threading import Lock

from starlette.types import Scope

from app.problems import RateLimitError

MINUTE = 60.0
ROUNDING = 1e-9  # seconds
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

    def fields(self, caller: str) -> list[tuple[bytes, bytes]]:
        """Return what a caller may do now, as header fields; none if nothing is limited.

        RateLimit-Policy: q calls in w seconds. RateLimit: r calls now, and if r is 0, t seconds
        until the next.
        """
        if self._most == 0:
            return []
        with self._lock:
            wait = self._wait(caller)
        left = floor((ROUNDING - wait) * self._most / MINUTE) + 1
        limit = f"r={left}" if left > 0 else f"r=0;t={ceil(wait)}"
        return [
            (b"ratelimit-policy", f'"default";q={self._most};w={MINUTE:.0f}'.encode()),
            (b"ratelimit", f'"default";{limit}'.encode()),
        ]

    def _check(self, caller: str) -> None:
        if self._most == 0:
            return
        wait = self._wait(caller)
        if wait > ROUNDING:
            raise RateLimitError(self._most, ceil(wait))

    def _wait(self, caller: str) -> float:
        """Return the seconds until a caller's next call; below 0, that long ago."""
        now = self._clock()
        return max(now, self._due.get(caller, now)) + MINUTE / self._most - now - MINUTE

    def _count(self, caller: str) -> None:
        if self._most == 0:
            return
        now = self._clock()
        self._due[caller] = max(now, self._due.get(caller, now)) + MINUTE / self._most
        self._due.move_to_end(caller)
        if len(self._due) > MOST_CALLERS:
            self._due.popitem(last=False)


def note_counted(scope: Scope, caller: str | None) -> None:
    """Have the answer to a call say what its caller may do; None: say nothing of anybody."""
    scope.setdefault("state", {})["counted"] = caller


def counted(scope: Scope) -> str | None:
    """Return the caller for whom a call was counted, None if it was not."""
    found: str | None = scope.get("state", {}).get("counted")
    return found


def fields_of(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the fields of the answer to a call; none unless it was counted."""
    caller = counted(scope)
    if caller is None:
        return []
    rates: Rates = scope["app"].state.rates
    return rates.fields(caller)
