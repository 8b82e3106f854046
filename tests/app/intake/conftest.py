"""An installation that serves the intake page, with two models and a mail server."""

from collections.abc import Iterator

import pytest
from starlette.routing import BaseRoute

from app.ledger.sequencer import Ledger
from app.settings import Settings
from tests import installation
from tests.app.intake.people import Mailbox, Visitor, mail_server
from tests.installation import Installation, install
from tests.workers.jobs.conftest import chance as chance
from tests.workers.jobs.desk.test_people import EVE, ready

ROUTES: list[BaseRoute] = []  # compiled once, as those of other installations


@pytest.fixture
def box() -> Iterator[Mailbox]:
    """Where codes arrive."""
    with mail_server() as made:
        yield made


@pytest.fixture
def site(
    settings: Settings, ledger: Ledger, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Installation]:
    """An installation without a model: what is refused needs none."""
    monkeypatch.setattr(installation, "routes", ROUTES)
    changes = {
        "intake": True,
        "intake_kinds": "customer",
        "smtp_url": box.url,
        "mail_from": "privacy@example.com",
        "decide": "review",
    }
    with install(Settings(**{**settings.model_dump(), **changes})) as made:
        yield made


@pytest.fixture
def page(site: Installation) -> Installation:
    """One whose models `one` and `two` know Ann and Bob, and Eve as held out."""
    ready(site, "one", "two", r99=EVE)
    return site


@pytest.fixture
def visitor(site: Installation) -> Visitor:
    """Somebody's browser."""
    return Visitor(site.caller.http)
