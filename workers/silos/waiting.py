"""Wait for silos: send tasks, send untaken ones again, poll until all are answered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.service.context import Services
from models import SiloTask
from workers.silos import table

SOONEST, LATEST = 0.05, 0.5  # seconds between two looks at the table
SEND_AGAIN = 5.0  # seconds after which an untaken task is sent again, and each time twice that
SEND_AGAIN_MOST = 60.0  # a silo may be busy with another client: do not flood its queue


@dataclass(frozen=True, slots=True)
class Waiting:
    """The rows of a job that are waited for. Times are in seconds of `clock`."""

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
            # Others of the job were left by a worker that died. One that is gone went with
            # the job, which another worker has done: nobody will answer it.
            waiting = [rows[name] for name in queues if name in rows and not over(rows[name])]
            left = deadline - self.clock()
            if not waiting or left <= 0:
                return rows
            unsent = {row.id: row.queue for row in waiting if row.taken_at is None}
            self.sleep(min(pause, left))
            pause = min(1.5 * pause, LATEST)


def over(row: SiloTask) -> bool:
    """Return whether a row was answered, if only by a fault."""
    return row.answered_at is not None
