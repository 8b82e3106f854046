"""Silos without a broker or processes of their own: messages are answered as they are sent."""

from collections.abc import Collection, Mapping

from app.dispatch import Dispatcher
from app.service.context import Services
from workers.families.base import score
from workers.silos import answer
from workers.silos.answer import Load, Score


class InlineSilos(Dispatcher):
    """Stricter than a broker: the last message comes first, and each comes twice.

    `down` are queues without a worker; `lost` is how many groups the broker loses. What was
    sent is in `asked`, one mapping for each group. Set `services` before the first round.
    """

    services: Services

    def __init__(self, load: Load, score: Score = score) -> None:
        self.load = load
        self.score = score
        self.down: Collection[str] = ()
        self.lost = 0
        self.asked: list[dict[str, str]] = []
        self.expires: list[float] = []

    def ask(self, silo_tasks: Mapping[str, str], *, expires: float) -> None:
        """Deliver a group."""
        self.asked.append(dict(silo_tasks))
        self.expires.append(expires)
        if len(self.asked) <= self.lost:
            return
        for row, queue in reversed(list(silo_tasks.items())):
            if queue not in self.down:
                own = {int(queue.removeprefix("silo-"))}
                answer.run(self.services, row, self.load, self.score, own)
                answer.run(self.services, row, self.load, self.score, own)
