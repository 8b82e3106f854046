"""The migrated schema equals that of the models, on both databases, however it is made."""

import subprocess
import sys

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Integer, MetaData, String, Table, inspect, text
from sqlalchemy.engine import Engine

from migrations import HEAD
from migrations.runner import alembic_config, upgrade
from models.database.session import make_engine
from models.database.types import METADATA


def _differences(engine: Engine, metadata: MetaData) -> list[object]:
    with engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, metadata))


def test_models_and_migrated_schema_agree(engine: Engine) -> None:
    assert _differences(engine, METADATA) == []


def test_the_comparison_sees_a_difference(engine: Engine) -> None:
    changed = MetaData()
    for table in METADATA.tables.values():
        table.to_metadata(changed)
    Table("stray", changed, Column("id", Integer, primary_key=True))
    changed.tables["jobs"].append_column(Column("stray", String(3)))
    changed.tables["bearer_tokens"].c.name.type = Integer()
    assert len(_differences(engine, changed)) == 3


def test_head_is_the_last_revision_and_there_is_one(engine: Engine) -> None:
    with engine.connect() as connection:
        script = ScriptDirectory.from_config(alembic_config(connection))
        assert script.get_heads() == [HEAD]
        stored = connection.execute(text("SELECT version_num FROM alembic_version")).all()
    assert stored == [(HEAD,)]


def test_every_constraint_has_a_name(engine: Engine) -> None:
    """On SQLite a later revision can only drop named constraints."""
    inspector = inspect(engine)
    for table in METADATA.tables:
        constraints = [
            inspector.get_pk_constraint(table),
            *inspector.get_foreign_keys(table),
            *inspector.get_unique_constraints(table),
        ]
        assert all(constraint["name"] for constraint in constraints), table


def test_upgrading_twice_changes_nothing(engine: Engine) -> None:
    before = _schema(engine)
    upgrade(engine)
    assert _schema(engine) == before


def test_downgrading_and_upgrading_again_gives_the_same_schema(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    upgrade(engine)
    before = _schema(engine)
    with engine.begin() as connection:
        command.downgrade(alembic_config(connection), "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]
    upgrade(engine)
    assert _schema(engine) == before
    engine.dispose()


def test_a_failing_revision_leaves_nothing_behind(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(empty_database_url)
    real = MigrationContext.run_migrations

    def interrupted(self: MigrationContext, **arguments: object) -> None:
        real(self, **arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(MigrationContext, "run_migrations", interrupted)
    with pytest.raises(KeyboardInterrupt):
        upgrade(engine)
    monkeypatch.undo()
    assert inspect(engine).get_table_names() == []
    upgrade(engine)
    assert _differences(engine, METADATA) == []
    engine.dispose()


def test_processes_that_migrate_at_once_all_succeed(empty_database_url: str) -> None:
    code = (
        "import sys; from models.database.session import make_engine; "
        "from migrations.runner import upgrade; "
        "sys.stdin.readline(); upgrade(make_engine(sys.argv[1]))"
    )
    command_line = [sys.executable, "-c", code, empty_database_url]
    processes = [subprocess.Popen(command_line, stdin=subprocess.PIPE) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=120)
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    engine = make_engine(empty_database_url)
    assert _differences(engine, METADATA) == []
    engine.dispose()


def _schema(engine: Engine) -> dict[str, object]:
    inspector = inspect(engine)
    schema: dict[str, object] = {
        table: (
            [(c["name"], str(c["type"]), c["nullable"]) for c in inspector.get_columns(table)],
            sorted(str(index["name"]) for index in inspector.get_indexes(table)),
        )
        for table in sorted(inspector.get_table_names())
    }
    with engine.connect() as connection:
        triggers = (
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
            if engine.dialect.name == "sqlite"
            else "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
        )
        schema["triggers"] = sorted(connection.execute(text(triggers)).scalars())
    return schema
