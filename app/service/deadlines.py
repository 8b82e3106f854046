"""Calendar of requests: when they are due, by regulation, and how days are counted.

Days, months and business days are those of the calendar of `settings.time_zone`. The time of
day is kept. Where the law lets a period end later, at midnight or after a holiday (Regulation
1182/71, Art. 3), the earlier end is used.
"""

import calendar
from datetime import UTC, datetime, timedelta, tzinfo
from math import floor
from zoneinfo import ZoneInfo

from app.settings import Settings

GDPR_MONTHS, GDPR_EXTENSION = 1, 2  # Art. 12(3)
CCPA_DAYS, CCPA_EXTENSION = 45, 45  # Cal. Civ. Code § 1798.130(a)(2)(A)
CONFIRM_DAYS = 10  # business days, 11 CCR § 7021(a)
REMIND_DAYS = (10, 3, 0)  # days left when officers are reminded of an open request
_SATURDAY = 5


def zone_of(settings: Settings) -> tzinfo:
    """Return the time zone whose calendar deadlines are counted in."""
    return ZoneInfo(settings.time_zone)


def due_at(
    received: datetime,
    regulation: str,
    zone: tzinfo = UTC,
    *,
    extended: bool = False,
    paused: timedelta = timedelta(0),
) -> datetime:
    """Return the deadline: one calendar month (GDPR) or 45 days (CCPA) from the receipt.

    extended: three months or 90 days, also from the receipt. paused: how long the clock was
    stopped; it is added to the end.
    """
    if regulation == "ccpa":
        end = _days_later(received, CCPA_DAYS + CCPA_EXTENSION * extended, zone)
    else:
        end = _months_later(received, GDPR_MONTHS + GDPR_EXTENSION * extended, zone)
    return end + paused


def confirm_by(received: datetime, regulation: str, zone: tzinfo = UTC) -> datetime | None:
    """Return the deadline for confirming the receipt of a request; None under the GDPR.

    Ten business days (CCPA): Monday to Friday. Public holidays count as business days, which
    makes it earlier.
    """
    if regulation != "ccpa":
        return None
    days = left = 0
    local = received.astimezone(zone)
    while left < CONFIRM_DAYS:
        days += 1
        left += (local + timedelta(days=days)).weekday() < _SATURDAY
    return _days_later(received, days, zone)


def days_left(due: datetime, now: datetime) -> int:
    """Return the whole days left, rounded down: -1 on the first day after the deadline."""
    return floor((due - now) / timedelta(days=1))


def _days_later(received: datetime, days: int, zone: tzinfo) -> datetime:
    """Return the same local time of day, days later: not 24 h each where clocks change."""
    return (received.astimezone(zone) + timedelta(days=days)).astimezone(received.tzinfo)


def _months_later(received: datetime, months: int, zone: tzinfo) -> datetime:
    """Return the same day of a later month, or its last day if it is shorter.

    As Regulation 1182/71, Art. 3(2)(c).
    """
    local = received.astimezone(zone)
    year, month = divmod(local.year * 12 + local.month - 1 + months, 12)
    day = min(local.day, calendar.monthrange(year, month + 1)[1])
    return local.replace(year=year, month=month + 1, day=day).astimezone(received.tzinfo)
