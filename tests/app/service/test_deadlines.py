"""Deadlines against a calendar that is walked through day by day."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.service.deadlines import confirm_by, days_left, due_at
from app.settings import Settings, SettingsError

NAMES = ("UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kathmandu")
ZONES = [ZoneInfo(name) for name in NAMES]
moments = st.datetimes(datetime(2024, 1, 1), datetime(2032, 12, 31), timezones=st.just(UTC))
zones = st.sampled_from(ZONES)


def walked(first: date, months: int) -> date:
    """Return the last day, so many months later, that is numbered no higher than the first."""
    day, found, changes = first, first, 0
    while changes <= months:
        if changes == months and day.day <= first.day:
            found = day
        following = day + timedelta(days=1)
        changes += following.month != day.month
        day = following
    return found


@settings(max_examples=200, deadline=None)
@given(moments, zones, st.booleans())
def test_months_are_those_of_the_calendar(at: datetime, zone: ZoneInfo, extended: bool) -> None:
    local = at.astimezone(zone)
    due = due_at(at, "gdpr", zone, extended=extended)
    assert due.astimezone(zone).date() == walked(local.date(), 3 if extended else 1)
    # The time of day is kept; where clocks skipped it, it is later by what they skipped.
    assert (due.astimezone(zone).time(), due.tzinfo) in (
        (local.time(), UTC),
        ((local + timedelta(hours=1)).time(), UTC),
    )
    paused = timedelta(days=3, hours=5)
    moved = due_at(at, "gdpr", zone, extended=extended, paused=paused)
    assert moved - due_at(at, "gdpr", zone, extended=extended) == paused


@settings(max_examples=200, deadline=None)
@given(moments, zones, st.booleans())
def test_days_are_those_of_the_calendar(at: datetime, zone: ZoneInfo, extended: bool) -> None:
    due = due_at(at, "ccpa", zone, extended=extended).astimezone(zone)
    local = at.astimezone(zone)
    assert due.date().toordinal() - local.date().toordinal() == (90 if extended else 45)


@settings(max_examples=200, deadline=None)
@given(moments, zones)
def test_business_days_are_walked(at: datetime, zone: ZoneInfo) -> None:
    until = confirm_by(at, "ccpa", zone)
    assert until is not None
    first, last = at.astimezone(zone).date(), until.astimezone(zone).date()
    walked = [first + timedelta(days=day) for day in range(1, (last - first).days + 1)]
    assert sum(day.isoweekday() not in (6, 7) for day in walked) == 10
    assert last.isoweekday() not in (6, 7)
    assert confirm_by(at, "gdpr", zone) is None


@pytest.mark.parametrize(
    ("received", "extended", "due"),
    [
        ("2026-01-31T10:00", False, "2026-02-28T10:00"),
        ("2028-01-31T10:00", False, "2028-02-29T10:00"),  # a leap year
        ("2026-11-30T10:00", True, "2027-02-28T10:00"),
        ("2026-01-31T10:00", True, "2026-04-30T10:00"),  # of the receipt, not of 28 February
        ("2026-12-31T23:59", False, "2027-01-31T23:59"),
    ],
)
def test_ends_of_months(received: str, extended: bool, due: str) -> None:
    at, expected = (datetime.fromisoformat(f"{one}+00:00") for one in (received, due))
    assert due_at(at, "gdpr", extended=extended) == expected


def test_a_day_too_late_is_minus_one() -> None:
    due = datetime(2026, 3, 1, tzinfo=UTC)
    found = [days_left(due, due + timedelta(hours=hours)) for hours in (-25, -24, -1, 0, 1, 25)]
    assert found == [1, 1, 0, 0, -1, -2]


def test_a_zone_that_nobody_knows_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"TIME_ZONE.*IANA"):
        Settings(time_zone="Europe/Atlantis")
