"""An installation whose small model is fitted, and what must hold of it in the end."""

from collections.abc import Iterator

import pytest
from sqlmodel import Session, select

from app import steps
from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.signing.keys import PrivateKey
from models import (
    Artifact,
    Certificate,
    ErasureRequest,
    LogEntry,
    ModelVersion,
    Record,
    Tombstone,
)
from tests.installation import Installation, install
from tests.small import ROWS


@pytest.fixture
def installed(settings: Settings, ledger: Ledger, fitted: PrivateKey) -> Iterator[Installation]:
    """A fitted installation; whatever a test planted is removed afterwards."""
    with install(settings) as made:
        made.caller.key = fitted
        yield made
    steps.install(None)


@pytest.fixture
def batching(settings: Settings, ledger: Ledger, fitted: PrivateKey) -> Iterator[Installation]:
    """A fitted installation in which three requests wait for one another."""
    waiting = {"batch_min_requests": 3, "batch_max_wait_seconds": 3600}
    with install(settings.model_copy(update=waiting)) as made:
        made.caller.key = fitted
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


def all_certified_once(installed: Installation, records: int) -> None:
    """Each request is certified, once, in one version of the model; the log is whole."""
    installed.check()
    with Session(installed.services.engine) as session:
        requests = session.exec(select(ErasureRequest)).all()
        assert {request.state for request in requests} == {"certified"}
        certificates = session.exec(select(Certificate)).all()
        assert {c.request_id for c in certificates} == {r.id for r in requests}
        assert len(certificates) == len(requests)
        leaves = select(LogEntry.index).where(LogEntry.kind == "hashedrekord")
        assert set(session.exec(leaves)) == {c.log_index for c in certificates}
        assert sorted(v.number for v in session.exec(select(ModelVersion))) == [1, 2]
        assert len(session.exec(select(Record)).all()) == ROWS - records
        assert len(session.exec(select(Tombstone)).all()) == records
        drafts = session.exec(select(Artifact).where(Artifact.kind == "draft")).all()
        assert [draft.wrapped_key for draft in drafts] == [None] * len(requests)
