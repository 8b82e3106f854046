"""An installation whose small model is fitted."""

from collections.abc import Iterator

import pytest

from app.ledger.sequencer import Ledger
from app.settings import Settings
from app.signing.keys import PrivateKey
from tests.app.api.declared import checking
from tests.installation import Installation, install


@pytest.fixture
def installation(settings: Settings, ledger: Ledger) -> Iterator[Installation]:
    """A fresh installation, nothing registered."""
    with install(settings) as made:
        schema = made.caller.http.app.openapi()  # type: ignore[attr-defined]
        made.caller.http.event_hooks["response"] = [checking(schema)]
        yield made


@pytest.fixture
def ready(installation: Installation, fitted: PrivateKey) -> Installation:
    """One whose key and model are registered and whose model is fitted."""
    installation.caller.key = fitted
    return installation
