"""After a transaction that destroyed keys: remove what they opened."""

from app.service.context import Services
from app.vault.scrub import scrub


def clean(services: Services) -> None:
    """Unlink shredded files and rewrite the pages where destroyed keys may still be read.

    A crash before this leaves noise without a key, and the sweep unlinks it.
    """
    with services.reading() as session:
        services.artifacts.unlink_shredded(session)
    scrub(services.engine)
