"""Batch size: the requests of one model that a stage can process in STAGE_S.

A worker runs one stage at a time. Work for other models waits until it ends, so a backlog of
one model must not occupy a worker for longer.
"""

from time import monotonic

from workers.jobs.leases.lease import Lease

STAGE_S = 0.75
LEAST = 64  # minimum batch: each update judges all rows of its model once more


class Pace:
    """Seconds per request of this process's latest stages, by model and stage."""

    def __init__(self) -> None:
        self._seconds: dict[int, dict[str, float]] = {}

    def note(self, lease: Lease, requests: int) -> None:
        """Record that the lease's stage, which ends now, processed so many requests.

        Small batches are ignored: their time is mostly fixed cost.
        """
        if requests >= LEAST:
            each = (monotonic() - lease.begun) / requests
            self._seconds.setdefault(lease.model_id, {})[lease.stage] = each

    def most(self, model_id: int) -> int:
        """Return the maximum batch size of a model, at least LEAST."""
        stages = self._seconds.get(model_id)
        return LEAST if not stages else max(LEAST, int(STAGE_S / max(stages.values())))


PACE = Pace()
