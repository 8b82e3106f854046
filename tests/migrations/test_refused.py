"""An upgrade that cannot migrate a database's rows changes nothing and says why."""

import pytest
from alembic import command
from click.testing import CliRunner
from sqlalchemy import text
from sqlalchemy.engine import Engine

from app.cli.migrate import migrate
from app.settings import Settings
from migrations import HEAD
from migrations.runner import UpgradeRefusedError, alembic_config, upgrade
from tests.migrations.test_filled import columns, rows


@pytest.fixture
def earlier(engine: Engine) -> Engine:
    """A database of an earlier schema, in which another program has a table of a later one."""
    with engine.begin() as connection:
        command.downgrade(alembic_config(connection), "0007")
        connection.execute(text("CREATE TABLE legal_holds (name VARCHAR(20))"))
        connection.execute(text("INSERT INTO legal_holds VALUES ('Jane Roe')"))
    return engine


def test_what_is_in_the_way_is_named_and_nothing_is_changed(earlier: Engine) -> None:
    before = rows(earlier, columns(earlier))
    with pytest.raises(UpgradeRefusedError) as refused:
        upgrade(earlier)
    said = str(refused.value)
    assert said.startswith("revision 0009 cannot be applied to what the database holds: ")
    assert "legal_holds" in said or "SQLSTATE 42P07" in said
    assert "Jane" not in said
    assert rows(earlier, columns(earlier)) == before
    with earlier.begin() as connection:
        current = connection.execute(text("SELECT version_num FROM alembic_version"))
        assert current.scalar_one() == "0007"  # the revisions before 0009 were rolled back too
        connection.execute(text("DROP TABLE legal_holds"))
    upgrade(earlier)
    with earlier.connect() as connection:
        current = connection.execute(text("SELECT version_num FROM alembic_version"))
        assert current.scalar_one() == HEAD


def test_the_command_says_so_too(
    earlier: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LETHE_DATABASE_URL", settings.resolved_database_url)
    monkeypatch.setenv("LETHE_DATA_DIR", str(settings.data_dir))
    told = CliRunner().invoke(migrate, [])
    assert isinstance(told.exception, UpgradeRefusedError)
    assert "revision 0009" in told.exception.detail


def test_a_newer_schema_is_left_alone(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    known = columns(engine)
    before = rows(engine, known)
    with pytest.raises(UpgradeRefusedError, match="revision 9999: upgrade this one"):
        upgrade(engine)
    assert rows(engine, columns(engine)) == before
