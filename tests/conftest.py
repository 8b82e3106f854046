"""Fixtures: fresh databases on real servers, settings, and an initialised ledger.

`database_url` and what rests on it (`engine`, `settings`, `ledger`) run each test twice, on
SQLite and on PostgreSQL. A test worker starts at most one server of each kind, when a test
first asks for it, and a fresh database is a copy of one migrated template. In a test that asks
for one of the beginnings (`fitted`, `with_certificate`, `taught`, …) they are a copy of that instead.
"""

import gc
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.engine import URL, Engine
from sqlalchemy.pool import NullPool

from app.ledger.sequencer import Ledger
from app.ledger.startup import load_ledger
from app.settings import Settings
from app.vault.master import RootSecret
from app.vault.seal import new_key
from lethe.signing.keys import PrivateKey
from migrations.runner import upgrade
from models.database.session import make_engine
from models.database.types import seal_columns
from tests import sizes
from tests.beginnings import BEGUN, Originals, beginning
from tests.probes import record
from tests.remote import Remote
from tests.servers import in_memory, postgres_server, redis_server
from tests.statements import share_statements
from tests.workers.secure_sum.client.federation import Masked

ORIGIN = "ledger.test/lethe"

# What Lethe acknowledges it has synced: tens of times in a test, some 10 ms each on a disk. No
# test cuts the power, they kill processes; so what they write lies in memory if it has room.
TEMPORARY_NEEDED = 4 * 2**30  # bytes; less than one is in use, packaging's installs most of it
if (memory := in_memory(TEMPORARY_NEEDED, programs=True)) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))

# Nobody's saved login reaches a test, nor a command that one starts.
os.environ["LETHE_CONFIG"] = "/nonexistent/login.toml"

OF_TESTS = ("LETHE_TEST_", "LETHE_VECTORS", "LETHE_CONFIG")

share_statements()

# Collecting the tests makes a million objects and no garbage: looking for it costs a seventh.
gc.disable()

# They wait for up to two minutes and hardly compute: begun first, others compute meanwhile.
WAITING = (
    "tests/app/cli/test_follow_files.py",
    "tests/e2e/alerts/",
    "tests/e2e/test_notices.py",
)
# They wait for processes a quarter of their time: spread among the others, which compute meanwhile.
PROCESSES = ("tests/docs/tried/", "tests/e2e/")

# A test trains if its module uses torch, or a helper that registers a network.
TRAINERS = {"torch", "tests.small_network", "tests.workers.jobs.families.network.networks"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out, unread, what `make coverage` or `make test` leaves out whole: imports take seconds."""
    if not collection_path.is_relative_to(config.rootpath):
        return None
    place, chosen = collection_path.relative_to(config.rootpath), config.option.markexpr
    if chosen == "quick" and place.name.startswith("test_"):
        return None if place.as_posix() in sizes.QUICK_FILES else True
    return True if "not full" in str(chosen) and place.as_posix() in sizes.FULL else None


def pytest_sessionfinish() -> None:
    """Write what was measured, in each process of the tests."""
    record()


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays until the end: torch, the modules, the tests.

    And let it look less often for the rest, a tenth of the time of whole installations.
    """
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that train and tests that are left to `make test-full`; order those that wait."""
    files = dict.fromkeys(item.nodeid.partition("::")[0] for item in items)
    processes = [file for file in files if file.startswith(PROCESSES)]
    others = [file for file in files if not file.startswith(PROCESSES)]
    place = {
        file: n / len(group) for group in (processes, others) for n, file in enumerate(group)
    }
    items.sort(
        key=lambda item: (
            not item.nodeid.startswith(WAITING),
            place[item.nodeid.partition("::")[0]],
        )
    )
    for item in items:
        used = vars(getattr(item, "module", None) or object).values()
        if TRAINERS & {value.__name__ for value in used if isinstance(value, ModuleType)}:
            item.add_marker(pytest.mark.trains)
    sizes.assign(items)


@pytest.fixture(scope="session")
def postgres() -> Iterator[URL]:
    """A PostgreSQL server, by the URL of its maintenance database."""
    with postgres_server() as url:
        yield make_url(url).set(drivername="postgresql+psycopg")


@pytest.fixture(scope="session")
def postgres_template(postgres: URL) -> Iterator[str]:
    """The name of a migrated database that nothing is connected to."""
    with fresh_database(postgres) as url:
        _migrate(url)
        assert url.database is not None
        yield url.database


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file that nothing has open."""
    path = tmp_path_factory.mktemp("template") / "lethe.db"
    _migrate(_sqlite_url(path))
    return path


@pytest.fixture(scope="session")
def postgresql_originals(
    postgres: URL, postgres_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Originals]:
    """What a test may begin with, on PostgreSQL."""
    with ExitStack() as stack:

        def fresh(_: str) -> str:
            url = stack.enter_context(fresh_database(postgres, postgres_template))
            return url.render_as_string(hide_password=False)

        yield Originals(ORIGIN, tmp_path_factory.mktemp("originals"), fresh)


@pytest.fixture(scope="session")
def sqlite_originals(
    sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Originals:
    """What a test may begin with, on SQLite."""
    directory = tmp_path_factory.mktemp("originals")

    def fresh(name: str) -> str:
        path = directory / f"{name}.db"
        shutil.copyfile(sqlite_template, path)
        return _sqlite_url(path).render_as_string()

    return Originals(ORIGIN, directory, fresh)


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, postgres: URL) -> Iterator[str]:
    """A fresh migrated database on PostgreSQL."""
    template: str = request.getfixturevalue("postgres_template")
    if name := beginning(request):
        original = _originals(request, "postgresql").of(name)
        template = make_url(original.database_url).database or ""
    with fresh_database(postgres, template) as url:
        yield url.render_as_string(hide_password=False)


@pytest.fixture
def sqlite_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh migrated database in SQLite."""
    template: Path | str = request.getfixturevalue("sqlite_template")
    if name := beginning(request):
        original = _originals(request, "sqlite").of(name)
        template = make_url(original.database_url).database or ""
    path = tmp_path / "lethe.db"
    shutil.copyfile(template, path)
    return _sqlite_url(path).render_as_string()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """A fresh migrated database; each test runs on both kinds."""
    name = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    url: str = request.getfixturevalue(name)
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without any table; each test runs on both kinds."""
    if request.param == "sqlite":
        yield _sqlite_url(tmp_path / "empty.db").render_as_string()
        return
    with fresh_database(request.getfixturevalue("postgres")) as url:
        yield url.render_as_string(hide_password=False)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on a fresh migrated database."""
    engine = make_engine(database_url)
    seal_columns(engine, RootSecret(new_key()))  # an installation's log brings its own
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def redis() -> Iterator[str]:
    """A Redis database of this test worker's own, by URL; a server given by URL is shared."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    with redis_server() as url:
        given = make_url(url)
        yield given.set(database=str(int(given.database or 0) + worker)).render_as_string(
            hide_password=False
        )


@pytest.fixture
def redis_url(redis: str) -> str:
    """An empty Redis database."""
    from redis import Redis

    with Redis.from_url(redis) as client:
        client.flushdb()
    return redis


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """An empty data directory."""
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def settings(database_url: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of an installation on a fresh migrated database, whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith("LETHE_") and not name.startswith(OF_TESTS):
            monkeypatch.delenv(name)
    # No officer: the tests of decisions register a model that is decided on, by themselves.
    return Settings(
        database_url=database_url, data_dir=data_dir, origin=ORIGIN, decide="at-once"
    )


@pytest.fixture
def ledger(request: pytest.FixtureRequest, settings: Settings, engine: Engine) -> Ledger:
    """A ledger whose log was just begun."""
    original = _originals(request, engine.dialect.name).of(beginning(request) or BEGUN)
    shutil.copytree(original.data_dir, settings.data_dir, dirs_exist_ok=True)
    return load_ledger(settings, engine)


@pytest.fixture
def fitted(request: pytest.FixtureRequest, ledger: Ledger, engine: Engine) -> PrivateKey:
    """`ledger` is a copy of one with the small model, fitted; the key is its requester's."""
    key: PrivateKey = _originals(request, engine.dialect.name).of("fitted").made
    return key


@pytest.fixture
def with_certificate(
    request: pytest.FixtureRequest, ledger: Ledger, engine: Engine
) -> PrivateKey:
    """`ledger` is a copy of one whose small model has record r1 erased; the requester's key."""
    key: PrivateKey = _originals(request, engine.dialect.name).of("with_certificate").made
    return key


@pytest.fixture
def contributed(request: pytest.FixtureRequest, ledger: Ledger, engine: Engine) -> Remote:
    """`ledger` is a copy of one with a model that learned clients' statistics; `Remote.at`."""
    remote: Remote = _originals(request, engine.dialect.name).of("contributed").made
    return remote


@pytest.fixture
def enrolled(request: pytest.FixtureRequest, ledger: Ledger, engine: Engine) -> Masked:
    """`ledger` is a copy of one with a masked model that learned nothing; see `Masked.at`."""
    masked: Masked = _originals(request, engine.dialect.name).of("enrolled").made
    return masked


@pytest.fixture
def taught(request: pytest.FixtureRequest, ledger: Ledger, engine: Engine) -> Masked:
    """`ledger` is a copy of one with a masked model that learned a round; see `Masked.at`."""
    masked: Masked = _originals(request, engine.dialect.name).of("taught").made
    return masked


def _originals(request: pytest.FixtureRequest, kind: str) -> Originals:
    originals: Originals = request.getfixturevalue(f"{kind}_originals")
    return originals


@contextmanager
def fresh_database(server: URL, template: str = "template1") -> Iterator[URL]:
    """Create a database and drop it again."""
    admin = create_engine(server, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    name = f"lethe_test_{uuid.uuid4().hex}"
    with admin.connect() as connection:
        # A copy of its files takes half the time of one by way of the log, which older have not.
        recent = (connection.dialect.server_version_info or ()) >= (15,)
        how = "STRATEGY FILE_COPY" if recent else ""
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template} {how}"))
    yield server.set(database=name)
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


def _migrate(url: URL) -> None:
    engine = make_engine(url.render_as_string(hide_password=False))
    upgrade(engine)
    engine.dispose()


def _sqlite_url(path: Path) -> URL:
    return URL.create("sqlite", database=str(path))
