"""An attacker returns a quarantined model to service: it learns nothing, and erases nothing."""

import numpy as np
import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from models import Contribution, Model
from tests.installation import Installation, state
from tests.small import Caller, pack, rows
from tests.workers.jobs.attempts.test_decisions import decide, spoil
from workers.jobs.publish import OUT_OF_SERVICE


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the log's content does not depend on it."""
    return sqlite_url


@pytest.fixture
def abandoned(ready: Installation, monkeypatch: pytest.MonkeyPatch) -> Installation:
    """An installation whose model has a refuted version, and no request that waits."""
    spoil(monkeypatch)
    request = str(ready.caller.erase_records("r1", "r6").json()["id"])
    ready.drain()
    monkeypatch.undo()
    assert decide(ready, request, "abandon") == 200
    assert model(ready).state == "quarantined"
    return ready


def model(at: Installation) -> Model:
    with Session(at.services.engine) as session:
        return session.exec(select(Model)).one()


def release(at: Installation) -> None:
    with at.services.engine.begin() as connection:
        connection.execute(text("UPDATE models SET state = 'ready', failure = NULL"))


def test_it_learns_nothing(abandoned: Installation) -> None:
    version = model(abandoned).current_version
    release(abandoned)
    client = Caller(abandoned.caller.http, abandoned.caller.token, keyid="client")
    client.register_key(role="client", client="c9")
    arrays = rows(seed=3, count=4, first=100)
    arrays["clients"] = np.array(["c9"] * 4)
    path, kind = "/v1/models/small/contributions", "application/x-npz"
    answer = client.signed("POST", path, pack(arrays), content_type=kind)
    assert answer.status_code == 202, answer.text
    abandoned.drain()
    with Session(abandoned.services.engine) as session:
        found = session.exec(select(Contribution).where(Contribution.keyid == "client")).one()
    assert (found.state, found.failure) == ("failed", OUT_OF_SERVICE)
    assert model(abandoned).current_version == version


def test_it_erases_nothing(abandoned: Installation) -> None:
    version = model(abandoned).current_version
    release(abandoned)
    request = str(abandoned.caller.erase_records("r2").json()["id"])
    abandoned.drain()
    assert (state(abandoned, request), model(abandoned).state) == (
        "needs-decision",
        "quarantined",
    )
    assert model(abandoned).current_version == version
