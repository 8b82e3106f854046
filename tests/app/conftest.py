"""An installation whose small model is fitted."""

from collections.abc import Iterator

import pytest

from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.signing.keys import PrivateKey
from tests.installation import Installation, install


@pytest.fixture
def ready(settings: Settings, ledger: Ledger, fitted: PrivateKey) -> Iterator[Installation]:
    """An installation whose key and model are registered and whose model is fitted."""
    with install(settings) as made:
        made.caller.key = fitted
        yield made
