"""When a request is due, by regulation."""

import calendar
from datetime import datetime, timedelta

CCPA_DAYS = 45  # Cal. Civ. Code § 1798.130(a)(2)


def due_at(received: datetime, regulation: str) -> datetime:
    """Return the deadline: one calendar month (GDPR Art. 12(3)) or 45 days (CCPA).

    A month ends on the same day of the next month, or on that month's last day where it is
    shorter (Regulation 1182/71, Art. 3(2)(c)).
    """
    if regulation == "ccpa":
        return received + timedelta(days=CCPA_DAYS)
    month = received.month % 12 + 1
    year = received.year + (received.month == 12)
    day = min(received.day, calendar.monthrange(year, month)[1])
    return received.replace(year=year, month=month, day=day)
