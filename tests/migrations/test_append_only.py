"""The database itself refuses changes of the log, tried with plain SQL."""

import re
import uuid
from collections.abc import Iterator

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError

from app.ledger.sequencer import Ledger
from app.ledger.startup import init_log
from app.reconcile.fsck.run import fsck
from app.settings import Settings
from app.vault.scrub import scrub
from migrations.grants import GrantError, check_role, grant
from models.database.session import make_engine
from tests.app.ledger.samples import append, entry, submit, tamper

TABLES = ("log_entries", "log_nodes", "log_checkpoints")

CHANGES = {
    "update-entry": "UPDATE log_entries SET leaf = ''",
    "update-entry-key": 'UPDATE log_entries SET "index" = 7 WHERE "index" = 1',
    "update-node": "UPDATE log_nodes SET level = level",
    "update-checkpoint": "UPDATE log_checkpoints SET note = ''",
    "delete-entry": 'DELETE FROM log_entries WHERE "index" = 1',
    "delete-node": "DELETE FROM log_nodes WHERE level = 1",
    "delete-checkpoint": "DELETE FROM log_checkpoints WHERE size = 0",
    "upsert-entry": "INSERT INTO log_entries SELECT * FROM log_entries WHERE true "
    "ON CONFLICT (\"index\") DO UPDATE SET kind = 'x'",
    "upsert-checkpoint": "INSERT INTO log_checkpoints SELECT * FROM log_checkpoints WHERE true "
    "ON CONFLICT (size) DO UPDATE SET note = 'x'",
}
ON_SQLITE = {
    "replace-entry": "REPLACE INTO log_entries SELECT \"index\", '', kind, event, ref, day, mac "
    "FROM log_entries",
    "replace-node": "INSERT OR REPLACE INTO log_nodes SELECT level, \"index\", '' FROM log_nodes",
    "replace-checkpoint": "REPLACE INTO log_checkpoints SELECT * FROM log_checkpoints",
    "update-or-replace": 'UPDATE OR REPLACE log_entries SET "index" = 0 WHERE "index" = 1',
}
ON_POSTGRESQL = {
    **{f"truncate-{table}": f"TRUNCATE {table}" for table in TABLES},
    "truncate-cascade": "TRUNCATE log_entries, bearer_tokens CASCADE",
    "merge": "MERGE INTO log_entries e USING log_entries s ON e.index = s.index "
    "WHEN MATCHED THEN DELETE",
    "update-where-nothing-matches": "UPDATE log_entries SET leaf = '' WHERE index = 99",
    "as-a-replica": "SET session_replication_role = replica; DELETE FROM log_entries",
}


@pytest.fixture
def log(ledger: Ledger) -> Ledger:
    append(ledger, entry(0), entry(1), entry(2))
    return ledger


@pytest.mark.parametrize("case", CHANGES)
def test_both_databases_refuse(log: Ledger, case: str) -> None:
    _refuses(log, CHANGES[case])


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("case", ON_SQLITE)
def test_sqlite_refuses(log: Ledger, case: str) -> None:
    _refuses(log, ON_SQLITE[case])


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("case", ON_POSTGRESQL)
def test_postgresql_refuses(log: Ledger, case: str) -> None:
    _refuses(log, ON_POSTGRESQL[case])


def _refuses(log: Ledger, statement: str) -> None:
    before = _content(log.engine)
    with pytest.raises(DBAPIError, match="append-only"):
        _run(log.engine, statement)
    assert _content(log.engine) == before
    assert fsck(log).ok


def _run(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        for part in statement.split("; "):
            connection.execute(text(part))


def test_without_the_triggers_the_same_sql_changes_the_log(log: Ledger) -> None:
    """So the triggers refuse, and fsck detects an owner who dropped them."""
    tamper(log.engine, CHANGES["delete-entry"])
    assert not fsck(log).ok


@pytest.fixture
def role(postgres_url: str) -> Iterator[tuple[Engine, Engine]]:
    """An owner's engine and that of a role with the service's privileges."""
    owner = make_engine(postgres_url)
    name = f"service-{uuid.uuid4().hex[:8]}"
    with owner.begin() as connection:
        connection.execute(text(f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{name}'"))
    grant(owner, name)
    grant(owner, name)  # again, as each `lethe migrate --grant` does
    url = make_url(postgres_url).set(username=name, password=name)
    service = make_engine(url.render_as_string(hide_password=False))
    yield owner, service
    service.dispose()
    with owner.begin() as connection:
        connection.execute(text(f'DROP OWNED BY "{name}"'))
        connection.execute(text(f'DROP ROLE "{name}"'))
    owner.dispose()


def test_the_services_role_works_and_lacks_the_privilege_even_without_triggers(
    role: tuple[Engine, Engine], tmp_path_factory: pytest.TempPathFactory
) -> None:
    owner, service = role
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"), origin="ledger.test/role")
    ledger = init_log(settings, service)
    submit(ledger)
    append(ledger, entry(0), entry(1))
    assert scrub(service)
    tamper(owner)  # drops the triggers
    shared = {case: sql for case, sql in CHANGES.items() if "upsert" not in case}
    shared |= {case: sql for case, sql in ON_POSTGRESQL.items() if "replica" not in case}
    for case, statement in shared.items():
        with pytest.raises(DBAPIError) as refused:
            _run(service, statement)
        assert re.search("permission denied|must be owner", str(refused.value)), case
    for statement in (
        "DROP TABLE log_entries",
        "ALTER TABLE log_entries DISABLE TRIGGER ALL",
        "DROP FUNCTION lethe_refuse_change",
        "DELETE FROM alembic_version",
    ):
        with pytest.raises(DBAPIError):
            _run(service, statement)
    assert fsck(ledger).ok


def test_roles_are_postgresqls(sqlite_url: str, postgres_url: str) -> None:
    for url, why in ((sqlite_url, "SQLite"), (postgres_url, "CREATE ROLE")):
        engine = make_engine(url)
        with pytest.raises(GrantError, match=why):
            grant(engine, "nobody-of-this-name")
        engine.dispose()


@pytest.mark.parametrize("how", ["member", "not-inherited", "public"])
def test_a_role_that_can_change_the_log_all_the_same_is_refused(
    postgres_url: str, how: str
) -> None:
    owner = make_engine(postgres_url)
    name = f"service-{uuid.uuid4().hex[:8]}"
    other = f"{name}-group"
    table = "log_checkpoints"
    grants = {
        "member": f'GRANT UPDATE ON {table} TO "{other}"; GRANT "{other}" TO "{name}"',
        "not-inherited": f'GRANT DELETE ON {table} TO "{other}"; GRANT "{other}" TO "{name}"; '
        f'ALTER ROLE "{name}" NOINHERIT',
        "public": f"GRANT UPDATE (note) ON {table} TO PUBLIC",
    }
    _run(owner, f'CREATE ROLE "{name}" LOGIN; CREATE ROLE "{other}"')
    try:
        grant(owner, name)
        _run(owner, f'DROP OWNED BY "{name}"; {grants[how]}')
        with pytest.raises(GrantError, match="can change the log whatever it is granted"):
            grant(owner, name)
        with owner.connect() as connection:
            allowed = text("SELECT has_table_privilege(:role, 'jobs', 'INSERT')")
            granted = connection.execute(allowed, {"role": name}).scalar_one()
        assert not granted
    finally:
        _run(owner, f"REVOKE UPDATE (note) ON {table} FROM PUBLIC")
        _run(owner, f'DROP OWNED BY "{name}", "{other}"; DROP ROLE "{name}", "{other}"')
        owner.dispose()


@pytest.mark.parametrize(
    "how", ["public-schema", "schema-owner", "database-owner", "programs", "superuser"]
)
def test_a_role_that_can_replace_the_log_is_refused_before_a_migration(
    postgres_url: str, how: str
) -> None:
    owner = make_engine(postgres_url)
    name = f"service-{uuid.uuid4().hex[:8]}"
    with owner.connect() as connection:
        me, database = connection.execute(text("SELECT current_user, current_database()")).one()
    change, back = {
        "public-schema": (
            "GRANT CREATE ON SCHEMA public TO PUBLIC",
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        ),
        "schema-owner": (
            f'ALTER SCHEMA public OWNER TO "{name}"',
            "ALTER SCHEMA public OWNER TO pg_database_owner",
        ),
        "database-owner": (
            f'ALTER DATABASE "{database}" OWNER TO "{name}"',
            f'ALTER DATABASE "{database}" OWNER TO "{me}"',
        ),
        "programs": (
            f'GRANT pg_execute_server_program TO "{name}"',
            f'REVOKE pg_execute_server_program FROM "{name}"',
        ),
        "superuser": (f'ALTER ROLE "{name}" SUPERUSER', f'ALTER ROLE "{name}" NOSUPERUSER'),
    }[how]
    _run(owner, f'CREATE ROLE "{name}" LOGIN')
    try:
        check_role(owner, name)
        _run(owner, change)
        for check in (check_role, grant):
            with pytest.raises(GrantError, match="can replace the log's tables"):
                check(owner, name)
    finally:
        _run(owner, f'{back}; DROP ROLE "{name}"')
        owner.dispose()


def _content(engine: Engine) -> list[object]:
    with engine.connect() as connection:
        return [
            connection.execute(text(f"SELECT * FROM {table} ORDER BY 1, 2")).all()
            for table in TABLES
        ]
