"""After a transaction that destroyed keys: remove what they opened, and their traces."""

from datetime import timedelta

from sqlmodel import col, select

from app.service.context import Services
from app.vault.scrub import scrub
from models import Artifact
from models.clock import clock

# Longer than any reader lives, so that at least one scrub comes after the last of them.
SCRUB_FOR = timedelta(minutes=10)


def clean(services: Services) -> None:
    """Unlink shredded files and rewrite the pages where destroyed keys may still be read.

    A crash before this, or a reader that keeps old pages alive, leaves traces of the key:
    `clean_again`, which the sweep calls, makes sure of it.
    """
    with services.reading() as session:
        services.artifacts.unlink_shredded(session)
    scrub(services.engine)


def clean_again(services: Services, orphan_age: timedelta) -> None:
    """Repeat what `clean` may have missed: orphans of crashes, and recent shredding."""
    with services.reading() as session:
        since = clock(session) - SCRUB_FOR
        recent = select(Artifact.id).where(col(Artifact.shredded_at) > since)
        services.artifacts.unlink_shredded(session, orphan_age)
        owed = session.exec(recent.limit(1)).first() is not None
    if owed:
        scrub(services.engine)
