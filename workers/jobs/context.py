"""What a job is worked on with: the service, the lease, and the model's row."""

from dataclasses import dataclass

from app.service.context import Services
from models import Model
from workers.jobs.lease import Lease


@dataclass(frozen=True, slots=True)
class JobContext:
    """A leased job. model: its row, of a job that executes as it was compared with the log.

    Whoever publishes computes from this object and reads no other. The transaction that
    publishes compares its own reading once more (`publish.current`).
    """

    services: Services
    lease: Lease
    model: Model
