"""Two installations: nothing but files, and PostgreSQL with Redis."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Processes, running


@pytest.fixture(params=["files", "servers"])
def processes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Processes]:
    """An installation on SQLite and the file broker, and one on PostgreSQL and Redis."""
    if request.param == "files":
        database, broker = "", "filesystem://"
    else:
        database = request.getfixturevalue("postgres_url")
        broker = request.getfixturevalue("redis_url")
    with running(tmp_path / "e2e", database, broker) as made:
        yield made


@pytest.fixture
def on_files(tmp_path: Path) -> Iterator[Processes]:
    """An installation on SQLite and the file broker."""
    with running(tmp_path / "e2e", "", "filesystem://") as made:
        yield made
