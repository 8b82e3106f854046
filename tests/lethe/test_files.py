"""What the service makes is its user's alone."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from app.dispatch import make_celery
from app.settings import Settings
from lethe.files import keep_private, warn_if_shared
from models.database.session import make_engine


@pytest.fixture(autouse=True)
def careless() -> Iterator[None]:
    """A umask that lets everybody read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def test_a_database_and_its_journal_are_its_user_s_alone(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path / 'lethe.db'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (x INTEGER)"))
        assert modes(tmp_path) == dict.fromkeys(
            ("lethe.db", "lethe.db-shm", "lethe.db-wal"), 0o600
        )
    engine.dispose()


def test_messages_are_their_user_s_alone(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data", broker_url="filesystem://")
    celery = make_celery(settings)
    celery.send_task("lethe.execute", ["00000000-0000-0000-0000-000000000000"], queue="lethe")
    found = modes(tmp_path / "data")
    assert any(name.endswith(".msg") for name in found)
    assert [name for name, mode in found.items() if mode & 0o077] == []


def test_a_narrow_umask_is_not_widened() -> None:
    os.umask(0o177)
    keep_private()
    assert os.umask(0o022) == 0o177


@pytest.mark.parametrize(("mode", "warned"), [(0o700, False), (0o750, True), (0o701, True)])
def test_a_shared_data_directory_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    tmp_path.chmod(mode)
    warn_if_shared(tmp_path)
    tmp_path.chmod(0o700)
    assert ("chmod 700" in caplog.text) == warned
