"""A dispatcher without a broker: nudges queue up and run when the test says so."""

from collections import deque
from collections.abc import Callable

from app.dispatch import QUEUE, Dispatcher
from app.service.context import Services
from workers.jobs import (
    certify,
    execute,
    sweep,
    verify,
)
from workers.method_audits import run as audit

STAGES: dict[str, Callable[[Services, str], None]] = {
    "execute": execute.run,
    "verify": verify.run,
    "certify": certify.run,
    "audit": audit.run,
}


class InlineDispatcher(Dispatcher):
    """Stricter than a broker: each nudge is delivered twice, the second at once after it."""

    def __init__(self) -> None:
        self.nudges: deque[tuple[str, str]] = deque()
        self.last: set[str] = set()  # jobs that were to come after all others
        self.queues: list[str] = []  # that they were for, in order, delivered ones included

    def nudge(
        self, job_id: str, stage: str = "execute", queue: str = QUEUE, *, last: bool = False
    ) -> None:
        """Queue a nudge, one that is to come last too: here none is still to come."""
        self.nudges.append((job_id, stage))
        self.queues.append(queue)
        if last:
            self.last.add(job_id)

    def check(self) -> int:
        """Always there; nobody puts anything else into it."""
        return 0

    def drain(self, services: Services) -> None:
        """Deliver nudges until there are none."""
        while self.nudges:
            job_id, stage = self.nudges.popleft()
            STAGES[stage](services, job_id)
            STAGES[stage](services, job_id)

    def sweep(self, services: Services) -> None:
        """Sweep and deliver, until nothing is stuck."""
        while sweep.run(services):
            self.drain(services)
