"""A database that was filled under an earlier schema is upgraded, and the service goes on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, select
from sqlalchemy.engine import Engine

import migrations
from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.signing.keys import PrivateKey
from migrations.runner import alembic_config, upgrade
from tests.installation import Installation, install

FIRST = "0002"  # tables, and what lets nobody change the log: no database was begun without
REVISIONS = sorted(
    path.name.partition("_")[0]
    for path in (Path(migrations.__file__).parent / "versions").glob("0*.py")
)


def rows(engine: Engine) -> dict[str, list[tuple[Any, ...]]]:
    """Return what every table has, as it is stored."""
    stored = MetaData()
    stored.reflect(engine)
    with engine.connect() as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(select(table)).all()), key=repr)
            for table in stored.sorted_tables
            if table.name != "alembic_version"
        }


@pytest.fixture
def filled(
    settings: Settings, ledger: Ledger, with_certificate: PrivateKey
) -> Iterator[Installation]:
    """An installation with a fitted model and a certificate."""
    with install(settings) as installation:
        installation.caller.key = with_certificate
        yield installation


@pytest.mark.parametrize("revision", [one for one in REVISIONS if one >= FIRST])
def test_a_filled_database_is_upgraded(filled: Installation, revision: str) -> None:
    """What the schema of a revision can hold stays, row by row."""
    engine = filled.services.engine
    with engine.begin() as connection:
        script = ScriptDirectory.from_config(alembic_config(connection))
        assert [one.revision for one in script.walk_revisions()] == REVISIONS[::-1]
        command.downgrade(alembic_config(connection), revision)
    before = rows(engine)
    assert len(before["log_entries"]) > 3
    assert before["certificates"]
    upgrade(engine)
    after = rows(engine)
    assert {name: after[name] for name in before} == before
    filled.check()
    request = filled.caller.erase_records("r7").json()["id"]
    filled.drain()
    shown = filled.caller.http.get(f"/v1/requests/{request}").json()
    assert shown["state"] == "certified"
    filled.check()
