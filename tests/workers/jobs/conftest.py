"""An installation whose small model is fitted."""

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.signing.keys import PrivateKey
from tests.installation import Installation, install
from workers.families.ridge import stored
from workers.leases import checkpoints
from workers.updates import update


@pytest.fixture(autouse=True)
def chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the same salts and judges' seeds in every run.

    They determine which rows are held out and scored, and with few rows an honest verdict
    varies.
    """
    drawn = np.random.default_rng(5).bytes
    for room in (update, stored):
        monkeypatch.setattr(room, "secrets", SimpleNamespace(token_bytes=drawn))
    monkeypatch.setattr(checkpoints, "os", SimpleNamespace(urandom=drawn))


@pytest.fixture
def installation(settings: Settings, ledger: Ledger) -> Iterator[Installation]:
    """A fresh installation without registrations."""
    with install(settings) as made:
        yield made


@pytest.fixture
def ready(installation: Installation, fitted: PrivateKey) -> Installation:
    """An installation with a registered key and a fitted model."""
    installation.caller.key = fitted
    return installation
