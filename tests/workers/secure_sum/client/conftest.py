"""A masked model that has learned the rows of four clients."""

from collections.abc import Iterator

import pytest

from app.ledger.sequencer import Ledger
from app.settings import Settings
from tests.installation import Installation, install
from tests.workers.secure_sum.client.federation import Masked


@pytest.fixture
def installation(settings: Settings, ledger: Ledger) -> Iterator[Installation]:
    """A fresh installation, nothing registered."""
    with install(settings) as made:
        yield made


@pytest.fixture
def fresh(installation: Installation, enrolled: Masked) -> Masked:
    """An empty masked model, and five clients."""
    return enrolled.at(installation)


@pytest.fixture
def learned(installation: Installation, taught: Masked) -> Masked:
    """A masked model that has learned all rows of four clients."""
    return taught.at(installation)
