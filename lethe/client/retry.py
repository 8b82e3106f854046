"""When to retry, and how long to wait before."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

# The request may have arrived: a retry is safe because every POST carries an Idempotency-Key,
# and GET and DELETE are idempotent (RFC 9110 section 9.2.2).
RETRYABLE_ERRORS = (
    httpx2.TimeoutException,
    httpx2.NetworkError,
    httpx2.RemoteProtocolError,
    httpx2.ProxyError,
)
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
        self, response: httpx2.Response, tried: int, jitter: Callable[[], float], now: datetime
    ) -> float | None:
        """Return the pause after a refusal, or None if a retry would not help.

        429 is retried only with a Retry-After. If the requested pause exceeds `longest_s` there
        is no retry, and the caller gets the refusal.
        """
        wanted = parse_retry_after(response.headers.get("retry-after"), now)
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
