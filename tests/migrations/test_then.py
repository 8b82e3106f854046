"""Databases that the code of their time filled: carried row by row, or refused and left alone."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from click.testing import CliRunner, Result
from sqlalchemy import MetaData, insert, null, text
from sqlalchemy.engine import Engine
from sqlmodel import Session, select

from app.backup.check import fsck_installation
from app.backup.rows import advance_sequences
from app.cli.migrate import migrate
from app.settings import Settings
from lethe.signing.keys import generate_key
from migrations import HEAD
from migrations.runner import UpgradeRefusedError, alembic_config
from models import ErasureRequest
from models.database.session import make_engine
from tests.conftest import ORIGIN
from tests.installation import install
from tests.migrations.test_filled import KEYS_LOGGED, REVISIONS, columns, rows

THEN = Path(__file__).parent / "then"
SINCE = sorted(path.stem for path in THEN.glob("????.json"))
# Tables of other families, silos, witnesses and unfinished work, which no database here has.
EMPTY = {
    "audit_pairs", "audits", "deliveries", "notice_cursor", "releases", "retained_pages",
    "round_members", "rounds", "silo_tasks", "witness_standings", "witnessed_checkpoints",
}  # fmt: skip
# Tables that are filled with requesters' keys, which an upgrade to 0008 refuses to carry.
OF_KEYS = {"callbacks", "intake_codes", "requester_keys", "used_nonces"}


@pytest.fixture
def earlier(request: pytest.FixtureRequest, empty_database_url: str) -> Iterator[Engine]:
    """A database of a revision, 0005 if none is given, without a row."""
    engine = make_engine(empty_database_url)
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), getattr(request, "param", "0005"))
    yield engine
    engine.dispose()


@pytest.fixture
def commanded(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """Settings of an installation on this database, which commands find."""
    settings = Settings(
        database_url=empty_database_url, data_dir=tmp_path, origin=ORIGIN, decide="at-once"
    )
    monkeypatch.setenv("LETHE_DATABASE_URL", empty_database_url)
    monkeypatch.setenv("LETHE_DATA_DIR", str(tmp_path))
    return settings


def kept(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((THEN / name).read_bytes())
    return found


def fill(engine: Engine, lines: list[str], *only: str) -> None:
    """Insert rows as `lethe backup new` of then wrote them. only: of these tables."""
    stored = MetaData()
    stored.reflect(engine)
    with engine.begin() as connection:
        for line in lines:
            value = json.loads(line)
            if isinstance(value, dict):
                table, names = stored.tables[value["table"]], value["columns"]
            elif not only or table.name in only:
                row = dict(zip(names, map(decoded, value), strict=True))
                connection.execute(insert(table).values(row))


def decoded(value: Any) -> Any:
    if value is None:
        return null()  # None would be the null of JSON in its columns
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "b":
        return base64.b64decode(content)
    return datetime.fromisoformat(content).replace(tzinfo=None) if kind == "t" else content


def at(engine: Engine) -> str:
    with engine.connect() as connection:
        found = connection.execute(text("SELECT version_num FROM alembic_version"))
        return str(found.scalar_one())


def refused(engine: Engine) -> str:
    """Return why `lethe migrate` refuses; it has changed nothing."""
    known = columns(engine)
    before = rows(engine, known)
    told: Result = CliRunner().invoke(migrate, [])
    assert isinstance(told.exception, UpgradeRefusedError), (told.output, told.exception)
    assert columns(engine) == known
    assert rows(engine, known) == before
    assert at(engine) == "0005"
    return told.exception.detail


def test_keys_that_no_entry_registers_are_not_carried(
    earlier: Engine, commanded: Settings
) -> None:
    fill(earlier, kept("0005-keys.json")["rows"])
    said = refused(earlier)
    assert said.startswith("revision 0008 cannot carry what the database holds: 1 keys in ")
    assert "lethe log init --succeeds KEYS" in said
    assert "1 codes in intake_codes" in said
    assert said.endswith("Nothing was changed")


def test_codes_of_which_nobody_is_known_as_the_issuer_are_not_carried(
    earlier: Engine, commanded: Settings
) -> None:
    fill(earlier, kept("0005-keys.json")["rows"], "intake_codes")
    said = refused(earlier)
    assert "requester_keys" not in said
    assert "or delete these rows" in said
    with earlier.begin() as connection:
        connection.execute(text("DELETE FROM intake_codes"))
    told = CliRunner().invoke(migrate, [])
    assert told.exit_code == 0, (told.output, told.exception)
    assert at(earlier) == HEAD


def test_each_schema_since_the_fifth_has_a_database_of_its_time() -> None:
    """A migration adds the database that the code before it fills: see the README."""
    kept_of = sorted(path.stem for path in THEN.glob("????.json"))
    assert kept_of == REVISIONS[REVISIONS.index("0005") : -1]


@pytest.mark.parametrize("earlier", [one for one in SINCE], indirect=True, ids=str)
def test_all_else_is_carried_and_the_service_goes_on(
    earlier: Engine, commanded: Settings
) -> None:
    revision = at(earlier)
    then = kept(f"{revision}.json")
    fill(earlier, then["rows"])
    for folder in ("keys", "artifacts"):
        (commanded.data_dir / folder).mkdir(mode=0o700)
        for name, content in then[folder].items():
            (commanded.data_dir / folder / name).write_bytes(base64.b64decode(content))
            (commanded.data_dir / folder / name).chmod(0o600)
    known = columns(earlier)
    known["subjects"].remove("wrapped_key")  # `lethe migrate` seals these for their owners
    before = rows(earlier, known)
    assert len(before["log_entries"]) > 10
    empty = {name for name, stored in before.items() if not stored}
    unfilled = EMPTY if revision >= KEYS_LOGGED else EMPTY | OF_KEYS
    assert empty == unfilled & known.keys()
    told = CliRunner().invoke(migrate, [])
    assert told.exit_code == 0, (told.output, told.exception)
    assert told.stderr == ""
    assert rows(earlier, known) == before
    with earlier.begin() as connection:
        if connection.dialect.name == "postgresql":
            advance_sequences(connection)
    with install(commanded) as installation:
        report = fsck_installation(commanded, installation.services.ledger)
        assert report.findings == []
        assert report.files
        installation.recover()
        installation.drain()
        installation.check()
        later = replace(installation.caller, keyid="later", key=generate_key("ed25519"))
        assert later.register_key().status_code == 201
        request = later.erase_records("r7").json()["id"]
        installation.drain()
        with Session(earlier) as session:
            states = set(session.exec(select(ErasureRequest.state)))
        assert states == {"certified"}, "also of what was asked before the upgrade"
        shown = later.http.get(f"/v1/requests/{request}").json()
        assert shown["state"] == "certified"
        installation.check()
