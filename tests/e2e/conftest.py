"""Two installations: nothing but files, and PostgreSQL with Redis.

Fitting a model takes longer than most of what is tested of it. So each module fits one on
either installation, and a test that begins with a fitted model begins with a copy.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool

from tests.e2e.forked import ForkServer, fork_server
from tests.e2e.harness import Processes, running, stopped

FILES = "filesystem://"


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServer]:
    """Starts processes that need not import everything again."""
    with fork_server() as server:
        yield server


@pytest.fixture(params=["files", "servers"])
def processes(
    request: pytest.FixtureRequest, tmp_path: Path, forks: ForkServer
) -> Iterator[Processes]:
    """An installation on SQLite and the file broker, and one on PostgreSQL and Redis."""
    if request.param == "files":
        database, broker = "", FILES
    else:
        database = request.getfixturevalue("postgres_url")
        broker = request.getfixturevalue("redis_url")
    with running(tmp_path / "e2e", database, broker, forks) as made:
        yield made


@pytest.fixture
def on_files(tmp_path: Path, forks: ForkServer) -> Iterator[Processes]:
    """An installation on SQLite and the file broker, with an empty log."""
    with running(tmp_path / "e2e", "", FILES, forks) as made:
        yield made


@pytest.fixture(scope="module")
def fitted_on_files(
    tmp_path_factory: pytest.TempPathFactory, forks: ForkServer
) -> Iterator[Processes]:
    """What `registered` copies."""
    with running(tmp_path_factory.mktemp("files") / "e2e", "", FILES, forks) as made:
        yield fit(made)


@pytest.fixture(scope="module")
def fitted_on_servers(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: URL,
    postgres_template: str,
    redis: str,
    forks: ForkServer,
) -> Iterator[Processes]:
    """What `registered_on_servers` copies."""
    directory = tmp_path_factory.mktemp("servers") / "e2e"
    with (
        copy_of(postgres, postgres_template) as database,
        running(directory, database, redis, forks) as made,
    ):
        yield fit(made)


@pytest.fixture
def registered(fitted_on_files: Processes, tmp_path: Path) -> Iterator[Processes]:
    """An installation on files whose model is fitted, nothing running."""
    with stopped(fitted_on_files.copy(tmp_path / "e2e", "", FILES)) as made:
        yield made


@pytest.fixture
def registered_on_servers(
    fitted_on_servers: Processes, postgres: URL, redis: str, tmp_path: Path
) -> Iterator[Processes]:
    """An installation on PostgreSQL and Redis whose model is fitted, nothing running."""
    template = fitted_on_servers.database_url.rpartition("/")[2].partition("?")[0]
    with Redis.from_url(redis) as broker:
        broker.flushdb()
    with (
        copy_of(postgres, template) as database,
        stopped(fitted_on_servers.copy(tmp_path / "e2e", database, redis)) as made,
    ):
        yield made


def fit(made: Processes) -> Processes:
    """Register key and model, wait for the fit, and leave nothing running."""
    made.start_api()
    made.start_worker()
    made.register()
    made.kill()
    return made


@contextmanager
def copy_of(server: URL, template: str) -> Iterator[str]:
    """Copy a database that nothing is connected to; yields the copy's URL."""
    admin = create_engine(server, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    name = f"lethe_e2e_{uuid.uuid4().hex}"
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
    yield server.set(database=name).render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
