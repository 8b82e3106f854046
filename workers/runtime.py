"""The services of a worker process, opened when its first task runs."""

from collections.abc import Iterable
from functools import cache

from app import steps
from app.dispatch import QUEUE
from app.service.context import Services, open_services
from app.settings import Settings

_silos: frozenset[int] = frozenset()
_queues: frozenset[str] = frozenset({QUEUE})


def become(silos: Iterable[int]) -> None:
    """Let this process answer for these silos; by default it answers for none."""
    global _silos
    _silos = frozenset(silos)


def silos() -> frozenset[int]:
    """Return the silos that this process answers for."""
    return _silos


def serve(queues: Iterable[str]) -> None:
    """Let this process take the jobs of these queues instead of only the default queue."""
    global _queues
    _queues = frozenset(queues)


def queues() -> frozenset[str]:
    """Return the queues whose jobs this process takes."""
    return _queues


@cache
def services() -> Services:
    """Open the ledger and the vault once; if that fails, each task fails by name."""
    settings = Settings()
    if settings.fault:
        steps.plant(settings.fault)
    return open_services(settings)
