"""An installation with cases in the queue, and people who are signed in."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from app.ledger.sequencer import Ledger
from app.settings import Settings
from tests.app.console.reader import Browser
from tests.installation import Installation, install, make_token
from tests.workers.jobs.desk.test_cases import person
from tests.workers.jobs.desk.test_people import ANN, named


@pytest.fixture
def installation(settings: Settings, ledger: Ledger) -> Iterator[Installation]:
    """A fresh installation, nothing registered."""
    with install(settings) as made:
        yield made


@dataclass
class Desk:
    """A case of Ann's and two requests that a key signed, all waiting for review."""

    installation: Installation
    case: str

    def browser(self, scope: str | None = "officer") -> Browser:
        """Return a browser of somebody with a token of this scope; None: of nobody."""
        token = None if scope is None else make_token(self.installation.services, scope)
        return Browser(self.installation.caller.http, token)


@pytest.fixture
def desk(installation: Installation) -> Desk:
    caller = installation.caller
    assert caller.register_key().status_code == 201
    assert caller.register_model(named(), decide="review").status_code == 201
    installation.drain()
    case = {
        "person": person(ANN),
        "ticket": "TICKET-4711",
        "checked": "called back",
        "contact": "Ann, Main St 1",
    }
    opened = caller.operator("POST", "/v1/cases", json=case)
    assert opened.status_code == 201, opened.text
    for record in ("r1", "r2"):
        assert caller.erase_records(record).status_code == 202
    return Desk(installation, opened.json()["ref"])
