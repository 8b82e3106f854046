"""Limits on pages that need no account: by client, by identity, and in total.

Counts are in the memory of each API process, so write access to the database cannot reset them:
with four processes each bound is four times as wide, and a restart resets it. Keys are HMACs
under a key of the process, so that a memory dump lists no addresses.
"""

import hmac
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from math import ceil
from threading import Lock

from fastapi import Request

from app.problems import AttemptsError

HOUR = 3600.0
MOST_KEYS = 20_000  # in memory for each bound, about 300 bytes each
NETWORK = 4  # an IPv6 /48 network may have this many times the bound of a client


def minutes(error: AttemptsError) -> int:
    """Return the minutes until the next call is accepted, rounded up."""
    return ceil(error.wait / 60)


@dataclass(frozen=True, slots=True)
class Bound:
    """At most `most` calls in `seconds`."""

    name: str
    most: int
    seconds: float = HOUR
    # Whether calls are refused once MOST_KEYS keys are counted. Otherwise the oldest is
    # dropped, so that strangers with made-up keys cannot block the page.
    kept: bool = False


class Limits:
    """The counts of one process. refused: the error raised when a bound is reached."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        refused: type[AttemptsError] = AttemptsError,
    ) -> None:
        self._clock, self._lock, self._refused = clock, Lock(), refused
        self._secret = secrets.token_bytes(32)
        # A map for each bound, so that keys of one cannot evict those of another.
        self._seen: dict[str, OrderedDict[bytes, deque[float]]] = {}

    def take(self, *bounds: tuple[Bound, str]) -> None:
        """Count one call under each bound and key, or under none if one is reached.

        Raises AttemptsError if one is; the error does not say which.
        """
        with self._lock:
            now = self._clock()
            self._refuse(bounds, now)
            for bound, key in bounds:
                seen, place = self._of(bound, now), self._place(bound, key)
                if place not in seen and len(seen) >= MOST_KEYS:
                    seen.popitem(last=False)
                seen.setdefault(place, deque()).append(now)
                seen.move_to_end(place)

    def check(self, *bounds: tuple[Bound, str]) -> None:
        """Raise AttemptsError if a bound is reached; count nothing."""
        with self._lock:
            self._refuse(bounds, self._clock())

    def _refuse(self, bounds: tuple[tuple[Bound, str], ...], now: float) -> None:
        waits = []
        for bound, key in bounds:
            seen = self._of(bound, now)
            times = seen.get(self._place(bound, key))
            if times is None:
                if bound.kept and len(seen) >= MOST_KEYS:
                    waits.append(next(iter(seen.values()))[-1] + bound.seconds - now)
                continue
            while times and times[0] <= now - bound.seconds:
                times.popleft()
            if len(times) >= bound.most:
                waits.append(times[0] + bound.seconds - now)
        if waits:
            raise self._refused(max(waits))

    def _of(self, bound: Bound, now: float) -> OrderedDict[bytes, deque[float]]:
        """Return a bound's unexpired keys, the least recently used first."""
        seen = self._seen.setdefault(bound.name, OrderedDict())
        while seen:
            times = next(iter(seen.values()))
            if times[-1] > now - bound.seconds:
                break
            seen.popitem(last=False)
        return seen

    def _place(self, bound: Bound, key: str) -> bytes:
        return hmac.digest(self._secret, f"{bound.name}\0{key}".encode(), "sha256")


def of_client(bound: Bound, client: str) -> tuple[tuple[Bound, str], ...]:
    """Return the bounds and keys of a client's call: its key and, for IPv6, its /48 network."""
    if ":" not in client:
        return ((bound, client),)
    wide = Bound(f"{bound.name} of a network", bound.most * NETWORK, bound.seconds)
    return (bound, client), (wide, client[:14])


def client_of(request: Request) -> str:
    """Return the key that the caller is counted by."""
    return client_key(request.client.host if request.client else None)


def client_key(host: str | None) -> str:
    """Return the key of a client: its address or, for IPv6, its /64 network."""
    try:
        address = ip_address((host or "").partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return address.exploded[:19]
    return str(address)
