"""A SoftHSM, and an installation on SQLite whose keys it may have."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.hsm import sessions
from app.settings import Settings
from tests.app.cli.test_backup import point_at
from tests.app.hsm.tokens.softhsm import CONFIGURATION, PIN, SoftHsm, module_path
from tests.conftest import OF_TESTS, ORIGIN


@pytest.fixture
def hsm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SoftHsm:
    """A SoftHSM with an empty token, `lethe`."""
    folder = tmp_path / "hsm"
    folder.mkdir()
    made = SoftHsm(folder, module_path())
    monkeypatch.setenv(CONFIGURATION, str(made.configuration))
    made.begin()
    return made


@pytest.fixture
def settings(
    hsm: SoftHsm, sqlite_url: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Settings]:
    """Settings of an installation that finds the token, also of the commands."""
    for name in list(os.environ):
        if name.startswith("LETHE_") and not name.startswith(OF_TESTS):
            monkeypatch.delenv(name)
    for name, value in (("MODULE", hsm.module), ("PIN", PIN)):
        monkeypatch.setenv(f"LETHE_PKCS11_{name}", value)
    monkeypatch.setenv("LETHE_ORIGIN", ORIGIN)
    made = Settings(database_url=sqlite_url, data_dir=data_dir, decide="at-once")
    point_at(made, monkeypatch)
    yield made
    sessions.end(made)  # the next test has other tokens


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: where keys are is nothing to the tables."""
    return sqlite_url
