"""The installation under attack: SQLite with files, and PostgreSQL with Redis.

On PostgreSQL the service runs as the restricted role of `lethe migrate --grant`, and an attacker
is given that role's URL: what the service may write, a stolen connection may write.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.pool import NullPool

from models.database.session import make_engine
from tests.e2e.forked import ForkServer, fork_server
from tests.e2e.harness import Processes, stopped


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here: `make coverage` leaves it out, `make red-team` runs it."""
    for item in items:
        if item.nodeid.startswith("tests/redteam/live/"):
            item.add_marker(pytest.mark.redteam)


@dataclass
class Target:
    """A running installation and the way into its database that an attacker has."""

    processes: Processes

    @contextmanager
    def database(self) -> Iterator[Engine]:
        """Yield an engine with the rights of the service itself, and no key."""
        engine = make_engine(self.processes.settings.resolved_database_url)
        try:
            yield engine
        finally:
            engine.dispose()

    def fsck(self) -> int:
        """Return the exit code of `lethe log fsck`."""
        return self.processes.cli("log", "fsck", check=False).returncode


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServer]:
    """Starts processes that need not import everything again."""
    with fork_server() as server:
        yield server


@pytest.fixture(params=["files", "servers"])
def target(
    request: pytest.FixtureRequest, tmp_path: Path, forks: ForkServer
) -> Iterator[Target]:
    """An installation with a fitted model, API and worker running, on either stack."""
    directory = tmp_path / "live"
    directory.mkdir()
    if request.param == "files":
        processes = Processes(directory, "", "filesystem://", forks=forks)
        with stopped(processes):
            processes.cli("migrate")
            yield _begun(processes)
        return
    broker = request.getfixturevalue("redis_url")
    with restricted(request.getfixturevalue("postgres")) as (owner, service, role):
        processes = Processes(directory, service, broker, forks=forks)
        with stopped(processes):
            replace(processes, database_url=owner).cli("migrate", "--grant", role)
            yield _begun(processes)


def _begun(processes: Processes) -> Target:
    processes.cli("log", "init")
    printed = processes.cli("token", "new", "--scope", "operator", "--name", "live").stdout
    processes.token = printed.split()[-1]
    processes.restart()
    processes.register()
    return Target(processes)


@contextmanager
def restricted(server: URL) -> Iterator[tuple[str, str, str]]:
    """Yield the owner's URL of a new database, the service's, and the service's role."""
    admin = create_engine(server, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    name = f"lethe_live_{uuid.uuid4().hex[:12]}"
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        connection.execute(text(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'"))
    owner = make_url(server).set(database=name)
    service = owner.set(username=name, password=name)
    try:
        yield (
            owner.render_as_string(hide_password=False),
            service.render_as_string(hide_password=False),
            name,
        )
    finally:
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
            connection.execute(text(f"DROP ROLE {name}"))
