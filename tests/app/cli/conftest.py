"""Installations that commands find by their environment."""

from collections.abc import Iterator

import pytest

from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.signing.keys import PrivateKey
from tests.installation import Installation, install


@pytest.fixture
def environment(settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables by which a command finds the installation."""
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    monkeypatch.setenv("LETHE_DATABASE_URL", settings.resolved_database_url)
    monkeypatch.setenv("LETHE_DATA_DIR", str(settings.data_dir))


@pytest.fixture
def running(
    settings: Settings, environment: None, fitted: PrivateKey
) -> Iterator[Installation]:
    """The installation of the environment, with a fitted model."""
    with install(settings) as installed:
        installed.caller.key = fitted
        yield installed
