"""The Celery beat schedule: several processes may start it, one elected leader runs it."""

from functools import cache
from typing import Any

from celery.beat import Scheduler

from app.election import RENEW_S, Election
from app.settings import Settings
from models.database.session import make_engine

WAIT_S = 1.0  # between two checks of the election, while another process leads


@cache
def election() -> Election:
    """Return this process's part in the election, on an engine of its own."""
    settings = Settings()
    renew_s = min(RENEW_S, settings.sweep_seconds)
    return Election(
        make_engine(settings.resolved_database_url, settings.stall_seconds), renew_s
    )


class ElectedScheduler(Scheduler):  # type: ignore[misc] # celery has no types
    """Sends due tasks while this process leads. It persists nothing: the schedule is code."""

    def tick(self, *args: Any, **options: Any) -> float:
        """Send due tasks if this process leads; return the seconds until the next check."""
        try:
            leads = election().leads()
        except Exception as error:  # a driver's text may quote a row
            self.logger.error("the schedule was not run: %s", type(error).__name__)
            leads = False
        return float(super().tick(*args, **options)) if leads else WAIT_S
