"""How many requests of one model go together: as many as a stage takes STAGE_S for.

A worker does one stage at a time. What came for other models meanwhile waits for the end of
this one, so that a backlog of one model must not keep a worker for longer.
"""

from time import monotonic

from workers.jobs.leases.lease import Lease

STAGE_S = 0.75
LEAST = 64  # always go together: each update judges all rows of its model once more


class Pace:
    """The seconds a request of what this process did last, by model and stage."""

    def __init__(self) -> None:
        self._seconds: dict[int, dict[str, float]] = {}

    def note(self, lease: Lease, requests: int) -> None:
        """Note that the lease's stage, which ends now, was of so many requests.

        Of few it says more of the model than of them, and is not noted.
        """
        if requests >= LEAST:
            each = (monotonic() - lease.begun) / requests
            self._seconds.setdefault(lease.model_id, {})[lease.stage] = each

    def most(self, model_id: int) -> int:
        """Return how many requests of a model are executed together, at least LEAST."""
        stages = self._seconds.get(model_id)
        return LEAST if not stages else max(LEAST, int(STAGE_S / max(stages.values())))


PACE = Pace()
