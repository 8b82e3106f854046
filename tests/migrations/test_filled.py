"""What a revision's schema can hold is kept in an upgrade, or the upgrade is refused.

Today's code fills these databases, and they are downgraded: what the code of then wrote
otherwise is not in them. `test_then.py` has databases that the code of their time filled, of each
revision since the fifth: here are the revisions before, and the two around a change of what is
kept.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, select
from sqlalchemy.engine import Engine
from sqlmodel import Session
from sqlmodel import select as select_rows

import migrations
from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.signing.keys import PrivateKey
from migrations.runner import UpgradeRefusedError, alembic_config, upgrade
from models import Case
from tests.installation import Installation, install
from tests.workers.jobs.desk.test_cases import opened
from tests.workers.jobs.desk.test_people import ANN, named

KEYS_LOGGED = "0008"  # its downgrade drops the openings of entries about keys: it refuses these
BEFORE_ANSWERED = "0010"
# 0001 is not here: no database was ever created without the triggers of 0002.
WITHOUT_KEYS = ("0002", "0003", "0004", "0007")
REVISIONS = sorted(
    path.name.partition("_")[0]
    for path in (Path(migrations.__file__).parent / "versions").glob("0*.py")
)


RENAMED = {
    ("callbacks", "told"): "delivered_state",  # since revision 0013
    ("jobs", "attempt"): "step",  # since revision 0014
    ("model_versions", "attempt"): "step",
}

Columns = dict[str, list[str]]
Rows = dict[str, list[tuple[Any, ...]]]


def columns(engine: Engine) -> Columns:
    """Return the columns of every table."""
    stored = MetaData()
    stored.reflect(engine)
    return {
        table.name: [column.name for column in table.columns]
        for table in stored.sorted_tables
        if table.name != "alembic_version"
    }


def rows(engine: Engine, wanted: Columns) -> Rows:
    """Return the stored values of these columns, also of those renamed since."""
    stored = MetaData()
    stored.reflect(engine)
    with engine.connect() as connection:
        found = {}
        for name, of in wanted.items():
            kept = stored.tables[name].c
            query = select(*(kept[one if one in kept else RENAMED[name, one]] for one in of))
            found[name] = sorted(map(tuple, connection.execute(query)), key=repr)
        return found


@pytest.fixture
def filled(
    settings: Settings, ledger: Ledger, with_certificate: PrivateKey
) -> Iterator[Installation]:
    """An installation with a fitted model and a certificate."""
    with install(settings) as installation:
        installation.caller.key = with_certificate
        yield installation


@pytest.mark.parametrize("revision", [*WITHOUT_KEYS, KEYS_LOGGED])
def test_a_filled_database_is_upgraded(filled: Installation, revision: str) -> None:
    """Everything is kept, row by row; with keys that no entry registers, nothing changes."""
    engine = filled.services.engine
    with engine.begin() as connection:
        script = ScriptDirectory.from_config(alembic_config(connection))
        assert [one.revision for one in script.walk_revisions()] == REVISIONS[::-1]
        command.downgrade(alembic_config(connection), revision)
    known = columns(engine)
    before = rows(engine, known)
    assert len(before["log_entries"]) > 3
    assert before["certificates"]
    if revision < KEYS_LOGGED:
        with pytest.raises(UpgradeRefusedError, match=r"1 keys in requester_keys"):
            upgrade(engine)
        assert columns(engine) == known
        assert rows(engine, known) == before
        return
    upgrade(engine)
    assert rows(engine, known) == before
    filled.check()
    request = filled.caller.erase_records("r7").json()["id"]
    filled.drain()
    shown = filled.caller.http.get(f"/v1/requests/{request}").json()
    assert shown["state"] == "certified"
    filled.check()


@pytest.mark.parametrize("revision", WITHOUT_KEYS)
def test_without_keys_a_database_of_before_they_were_logged_is_upgraded(
    settings: Settings, ledger: Ledger, revision: str
) -> None:
    with install(settings) as installation:
        assert installation.caller.register_model().status_code == 201
        installation.drain()
        engine = installation.services.engine
        with engine.begin() as connection:
            command.downgrade(alembic_config(connection), revision)
        known = columns(engine)
        before = rows(engine, known)
        assert before["records"]
        upgrade(engine)
        assert rows(engine, known) == before
        assert installation.caller.register_key().status_code == 201
        assert installation.caller.erase_records("r7").status_code == 202
        installation.drain()
        installation.check()


def test_whether_cases_of_before_are_answered_is_known_after_the_upgrade(
    filled: Installation,
) -> None:
    answer = filled.caller.register_model(named(), ref="named", decide="review")
    assert answer.status_code == 201, answer.text
    filled.drain()
    asked, nothing = opened(filled, ANN).json()["ref"], opened(filled, "x@y.z").json()["ref"]
    engine = filled.services.engine
    with engine.begin() as connection:
        command.downgrade(alembic_config(connection), BEFORE_ANSWERED)
    upgrade(engine)
    with Session(engine) as session:
        stored = {one.ref: one.answered for one in session.exec(select_rows(Case))}
    assert stored == {asked: False, nothing: True}
    filled.check()
