"""When to retry, and how long to wait before."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

# The request may have arrived. A retry is safe: signed POSTs carry an Idempotency-Key, and GET,
# PUT and DELETE are idempotent (RFC 9110 section 9.2.2). What is done each time is `Call.once`.
RETRYABLE_ERRORS = (
    httpx2.TimeoutException,
    httpx2.NetworkError,
    httpx2.RemoteProtocolError,
    httpx2.ProxyError,
)
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
RETRYABLE_STATUS = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """tries: total, including the first.

    first_s, longest_s: first and longest pause, seconds.
    """

    tries: int = 5
    first_s: float = 0.2
    longest_s: float = 30.0

    def pause(self, tried: int, jitter: Callable[[], float]) -> float:
        """Return the pause after failed try 1, 2, …: doubled each time, less up to half of it.

        jitter returns a number in [0, 1); without it, clients that failed together would retry
        together.
        """
        # The exponent is bounded because 2.0**1024 overflows.
        full = min(self.longest_s, self.first_s * 2.0 ** min(tried - 1, 60))
        return full * (1 - jitter() / 2)

    def pause_after(
        self,
        response: httpx2.Response,
        tried: int,
        jitter: Callable[[], float],
        now: datetime,
        *,
        once: bool = False,
    ) -> float | None:
        """Return the pause after a refusal, or None if a retry would not help.

        429 is retried only with a Retry-After. If the requested pause exceeds `longest_s` there
        is no retry, and the caller gets the refusal. once: of a call that must not be done
        twice. Only 429 says that it was not done: 503 may come after the commit.
        """
        wanted = parse_retry_after(response.headers.get("retry-after"), now)
        if once and response.status_code != 429:
            return None
        if response.status_code in RETRYABLE_STATUS:
            pause = self.pause(tried, jitter) if wanted is None else wanted
        elif response.status_code == 429 and wanted is not None:
            pause = wanted
        else:
            return None
        return pause if pause <= self.longest_s else None


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Return the seconds of a Retry-After (RFC 9110 section 10.2.3), or None."""
    if value is None:
        return None
    if value.isascii() and value.isdecimal() and len(value) < 10:
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):  # the latter for a year or zone of many digits
        return None
    if at.tzinfo is None:  # "-0000": UTC of unknown origin
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())
