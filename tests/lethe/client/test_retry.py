"""Pauses are bounded, and a service that says when is believed."""

from datetime import UTC, datetime

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.client.retry import RetryPolicy, parse_retry_after

NOW = datetime(2026, 12, 2, 8, 0, 0, tzinfo=UTC)


@given(
    st.integers(1, 5000),
    st.floats(0, 1, exclude_max=True),
    st.floats(0.001, 10),
    st.floats(0.001, 100),
)
@settings(deadline=None)
def test_pauses_grow_but_stay_bounded(
    tried: int, jitter: float, first: float, longest: float
) -> None:
    policy = RetryPolicy(first_s=first, longest_s=longest)
    full = min(longest, first * 2 ** min(tried - 1, 500))
    assert full / 2 <= policy.pause(tried, lambda: jitter) <= full


PAUSES = [
    ("unavailable", 503, None, 0.2),
    ("bad gateway", 502, None, 0.2),
    ("gateway timeout", 504, None, 0.2),
    ("unavailable, says when", 503, "7", 7.0),
    ("unavailable, says a date", 503, "Wed, 02 Dec 2026 08:00:09 GMT", 9.0),
    ("unavailable, a date gone by", 503, "Wed, 02 Dec 2026 07:00:00 GMT", 0.0),
    ("unavailable, mumbles", 503, "soon", 0.2),
    ("unavailable, for an hour", 503, "3600", None),
    ("too many, says when", 429, "2", 2.0),
    ("too many, says nothing", 429, None, None),
    ("too many, for an hour", 429, "3600", None),
    ("a bug", 500, None, None),
    ("a bug that says when", 500, "1", None),
    ("refused", 422, "1", None),
    ("not found", 404, None, None),
    ("moved", 301, None, None),
]


@pytest.mark.parametrize(
    ("status", "after", "want"), [row[1:] for row in PAUSES], ids=[row[0] for row in PAUSES]
)
def test_which_refusals_are_worth_another_attempt(
    status: int, after: str | None, want: float | None
) -> None:
    headers = {} if after is None else {"Retry-After": after}
    response = httpx2.Response(status, headers=headers)
    assert RetryPolicy().pause_after(response, 1, lambda: 0.0, NOW) == want


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("0", 0.0),
        ("-1", None),
        ("1.5", None),
        ("\u0663", None),  # a digit, but not HTTP's
        ("9" * 400, None),
        ("", None),
        ("Wed, 02 Dec 2026 08:00:30 -0000", 30.0),
        ("Wed, 02 Dec 2026 10:00:30 +0200", 30.0),
        ("Wed, 99 Dec 2026 08:00:30 GMT", None),
        (f"Wed, 02 Dec {'9' * 20} 08:00:30 GMT", None),
        (f"Wed, 02 Dec 2026 08:00:30 +{'9' * 20}", None),
    ],
)
def test_retry_after_is_read_strictly(value: str, want: float | None) -> None:
    assert parse_retry_after(value, NOW) == want


@given(st.text())
@settings(deadline=None)
def test_no_text_breaks_the_reader(value: str) -> None:
    wanted = parse_retry_after(value, NOW)
    assert wanted is None or wanted >= 0
