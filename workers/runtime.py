"""The services of a worker process, opened when its first task runs."""

from functools import cache

from app import steps
from app.service.context import Services, open_services
from app.settings import Settings


@cache
def services() -> Services:
    """Open the ledger and the vault once; a worker that cannot, fails its tasks by name."""
    settings = Settings()
    if settings.fault:
        steps.plant(settings.fault)
    return open_services(settings)
