"""PostgreSQL's archived write-ahead log restores every request, or those before a time."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.pool import NullPool
from sqlmodel import Session, select

from app.cli.migrate import migrate
from app.ledger.guard import RolledBackError
from app.service.context import open_services
from app.settings import Settings
from lethe.cli.log import log
from models import Record
from tests.app.cli.test_backup import mirror, point_at, run
from tests.installation import Installation, install, state
from tests.servers import ArchivedPostgres, archived_postgres
from tests.small import MODEL

BEFORE = "before_the_second"


@pytest.fixture(scope="module")
def server() -> Iterator[ArchivedPostgres]:
    with archived_postgres() as started:
        yield started


def ask(server: ArchivedPostgres, statement: str) -> object:
    engine = create_engine(server.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        return _first(connection, statement)


def _first(connection: Connection, statement: str) -> object:
    return connection.execute(text(statement)).scalar_one()


def archive_all(server: ArchivedPostgres) -> None:
    """Archive the current segment too, which a lost server could not do."""
    last = ask(server, "SELECT pg_walfile_name(pg_switch_wal())")
    deadline = time.monotonic() + 60
    while not (server.root / "archive" / str(last)).exists():
        assert time.monotonic() < deadline, "the archiver does not work"
        time.sleep(0.05)


def erase(installed: Installation, client: str) -> str:
    answer = installed.caller.erase({"level": "client", "client": client})
    assert answer.status_code == 202, answer.text
    installed.drain()
    return str(answer.json()["id"])


def stored(installed: Installation) -> set[str]:
    with Session(installed.services.engine) as session:
        return {str(one) for one in session.exec(select(Record.record))}


def test_nothing_is_lost_up_to_the_archives_end_and_nobody_comes_back_before_it(
    server: ArchivedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(
        database_url=server.url,
        data_dir=tmp_path / "data",
        origin="localhost/archived",
        decide="at-once",
    )
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    point_at(settings, monkeypatch)
    assert run(migrate).exit_code == 0
    assert run(log, "init").exit_code == 0
    with install(settings) as installed:
        installed.ready()
        token, key = installed.caller.token, installed.caller.key
        server.back_up()
        first = erase(installed, "c1")
        ask(server, f"SELECT pg_create_restore_point('{BEFORE}')::text")
        second = erase(installed, "c2")
        mirror(installed, tmp_path / "m")
        held = stored(installed)
    archive_all(server)
    for name in ("whole", "earlier"):
        shutil.copytree(settings.data_dir, tmp_path / name)
    with server.recovered() as url:
        new = settings.model_copy(update={"database_url": url, "data_dir": tmp_path / "whole"})
        with install(new) as installed:
            installed.caller.token, installed.caller.key = token, key
            assert (state(installed, first), state(installed, second)) == ("certified",) * 2
            assert stored(installed) == held
            installed.check()
            assert state(installed, erase(installed, "c3")) == "certified"
            installed.check()
    with server.recovered(BEFORE) as url:
        data = tmp_path / "earlier"
        new = settings.model_copy(update={"database_url": url, "data_dir": data})
        point_at(new, monkeypatch)
        with pytest.raises(RolledBackError):
            open_services(new)
        told = run(log, "recover", str(tmp_path / "m"))
        assert told.exit_code == 0, (told.output, told.exception)
        assert "erased again: 8 records" in told.output
        with install(new) as installed:
            installed.caller.token, installed.caller.key = token, key
            assert stored(installed) == held
            assert state(installed, first) == "certified"
            path = f"/v1/models/{MODEL}"
            assert installed.caller.operator("GET", path).json()["state"] == "quarantined"
            assert installed.caller.operator("POST", f"{path}/mend").status_code == 202
            installed.drain()
            assert installed.caller.operator("GET", path).json()["state"] == "ready"
