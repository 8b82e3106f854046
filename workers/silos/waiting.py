"""Wait for silos: send tasks, resend untaken ones, poll until all are answered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.service.context import Services
from models import SiloTask
from workers.silos import table

SOONEST, LATEST = 0.05, 0.5  # seconds between two polls of the table
SEND_AGAIN = 5.0  # seconds until an untaken task is resent, doubled each time
SEND_AGAIN_MOST = 60.0  # a silo may be busy with another client: do not flood its queue


@dataclass(frozen=True, slots=True)
class Waiting:
    """Waits for the rows of a job. Times are in seconds of `clock`."""

    services: Services
    job_id: str
    clock: Callable[[], float]
    sleep: Callable[[float], None]

    def until(self, queues: Mapping[str, str], deadline: float) -> dict[str, SiloTask]:
        """Send the rows {id: queue}; return the job's when all are answered or time is over."""
        unsent = dict(queues)
        pause, again, wait = SOONEST, self.clock(), SEND_AGAIN
        while True:
            now = self.clock()
            if unsent and now >= again:
                self.services.dispatcher.ask(unsent, expires=max(deadline - now, 1.0))
                again, wait = now + wait, min(2 * wait, SEND_AGAIN_MOST)
            rows = table.rows_of(self.services, self.job_id)
            # The job's other rows were left by a dead worker. A missing row was removed with
            # the job, finished by another worker: no answer will come.
            waiting = [rows[name] for name in queues if name in rows and not over(rows[name])]
            left = deadline - self.clock()
            if not waiting or left <= 0:
                return rows
            unsent = {row.id: row.queue for row in waiting if row.taken_at is None}
            self.sleep(min(pause, left))
            pause = min(1.5 * pause, LATEST)


def over(row: SiloTask) -> bool:
    """Return whether a row was answered, even by a fault."""
    return row.answered_at is not None
