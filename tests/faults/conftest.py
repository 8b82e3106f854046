"""An installation whose small model is fitted, and what must hold of it in the end."""

from collections.abc import Iterator

import pytest
from sqlmodel import Session, select

from app import steps
from app.ledger.sequencer import Ledger
from app.settings import Settings
from models import Certificate, ErasureRequest, Record, Tombstone
from tests.installation import Installation, install
from tests.small import ROWS


@pytest.fixture
def installed(settings: Settings, ledger: Ledger) -> Iterator[Installation]:
    """A fitted installation; whatever a test planted is removed afterwards."""
    with install(settings) as made:
        made.ready()
        yield made
    steps.install(None)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    steps.install(None)


def certified_once(installed: Installation) -> None:
    """The one request, for two records, is certified, once, and the log is whole."""
    installed.check()
    with Session(installed.services.engine) as session:
        requests = session.exec(select(ErasureRequest)).all()
        assert [request.state for request in requests] == ["certified"]
        certificates = session.exec(select(Certificate)).all()
        assert [c.request_id for c in certificates] == [r.id for r in requests]
        assert len(session.exec(select(Record)).all()) == ROWS - 2
        assert len(session.exec(select(Tombstone)).all()) == 2
