"""Logs that may be begun, started and signed, and logs that are refused with a remedy."""

import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine

from app.ledger import log_files, startup
from app.ledger.entry_macs import KeyMissingError
from app.ledger.guard import ForkedError, GuardExistsError, RolledBackError, SigningGuard
from app.ledger.sequencer import Ledger, LogExistsError
from app.ledger.startup import (
    SchemaError,
    UnreachableDatabaseError,
    init_log,
    load_issuer,
    load_ledger,
    require_schema,
)
from app.ledger.transaction import Transaction
from app.settings import Settings
from app.vault.master import RootSecret
from lethe.errors import LetheError
from lethe.log.note import parse_vkey
from lethe.signing.keys import generate_key, load_public_key, private_pem, public_pem
from models.database.session import make_engine
from tests.app.ledger.samples import append, entry, rewind, stored_leaves, tamper
from tests.lethe.log import oracle


def test_init_makes_all_keys_closed_to_others_and_the_empty_checkpoint(
    settings: Settings, ledger: Ledger
) -> None:
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in settings.keys_dir.iterdir()}
    assert modes == {
        "log.key": 0o600,
        "log.vkey": 0o644,
        "log.guard.json": 0o600,
        "issuer.key": 0o600,
        "issuer.pem": 0o644,
        "master.key": 0o600,
        "root.sealed": 0o600,
        "entries.key": 0o600,
        "erased.journal": 0o600,
        "revoked.list": 0o600,
    }
    assert stat.S_IMODE(settings.keys_dir.stat().st_mode) == 0o700
    vkey = (settings.keys_dir / "log.vkey").read_text().removesuffix("\n")
    assert parse_vkey(vkey) == ledger.verifier
    assert ledger.verifier.name == ledger.origin == settings.origin
    issuer, keyid = load_issuer(settings)
    assert keyid == settings.issuer_keyid
    pem = (settings.keys_dir / "issuer.pem").read_bytes()
    assert load_public_key(pem) == issuer.public_key()
    assert RootSecret.load(settings)
    assert ledger.latest().size == 0
    assert ledger.latest().root == oracle.mth(())


def test_init_keeps_keys_that_are_there(settings: Settings, engine: Engine) -> None:
    settings.keys_dir.mkdir()
    key = generate_key("ecdsa-p256-sha256")
    (settings.keys_dir / "issuer.key").write_text(private_pem(key))
    init_log(settings, engine)
    issuer, _ = load_issuer(settings)
    assert public_pem(issuer.public_key()) == public_pem(key)


def test_a_started_log_goes_on_where_it_was(settings: Settings, ledger: Ledger) -> None:
    append(ledger, entry(0), entry(1))
    again = load_ledger(settings)
    assert append(again, entry(2)) == [2]
    assert append(ledger, entry(3)) == [3]
    again.engine.dispose()


def test_init_refuses_a_second_log_and_leaves_the_first(
    settings: Settings, ledger: Ledger
) -> None:
    append(ledger, entry(0))
    keys = {p: p.read_bytes() for p in settings.keys_dir.iterdir()}
    with pytest.raises(LogExistsError):
        init_log(settings, ledger.engine)
    assert {p: p.read_bytes() for p in settings.keys_dir.iterdir()} == keys


def test_init_makes_no_new_keys_where_the_old_ones_are_lost(
    settings: Settings, ledger: Ledger
) -> None:
    shutil.rmtree(settings.keys_dir)
    with pytest.raises(LogExistsError):
        init_log(settings, ledger.engine)
    assert not settings.keys_dir.exists()


def test_init_refuses_a_key_that_has_signed_a_log(settings: Settings, ledger: Ledger) -> None:
    append(ledger, entry(0))
    _lose_log(ledger.engine)
    with pytest.raises(GuardExistsError, match="restore"):
        init_log(settings, ledger.engine)


def test_init_finishes_what_a_crash_left(settings: Settings, ledger: Ledger) -> None:
    """The guard is written before the commit; for the empty tree both can be repeated."""
    note = ledger.latest().note
    _lose_log(ledger.engine)
    assert init_log(settings, ledger.engine).latest().note == note


def test_a_backup_older_than_the_guard_is_neither_started_nor_signed(
    settings: Settings, ledger: Ledger
) -> None:
    append(ledger, entry(0))
    append(ledger, entry(1))
    rewind(ledger.engine, 1)
    called: list[Transaction] = []
    for refused in (
        lambda: load_ledger(settings, ledger.engine),
        lambda: ledger.transact(called.append),
        lambda: append(ledger, entry(7)),
    ):
        with pytest.raises(RolledBackError, match="restore a newer backup"):
            refused()
    assert called == []
    assert stored_leaves(ledger.engine) == (entry(0),)
    assert ledger.latest().size == 1


def test_a_restored_sqlite_file_is_refused(
    tmp_path: Path, data_dir: Path, sqlite_url: str
) -> None:
    settings = Settings(database_url=sqlite_url, data_dir=data_dir, origin="ledger.test/x")
    ledger = init_log(settings)
    append(ledger, entry(0))
    ledger.engine.dispose()  # the last connection copies the write-ahead log back
    backup = shutil.copy(tmp_path / "lethe.db", tmp_path / "backup.db")
    append(ledger, entry(1))
    ledger.engine.dispose()
    shutil.copy(backup, tmp_path / "lethe.db")
    with pytest.raises(RolledBackError):
        load_ledger(settings)


def test_another_history_is_neither_started_nor_signed(
    settings: Settings, ledger: Ledger
) -> None:
    append(ledger, entry(0))
    guard = settings.keys_dir / "log.guard.json"
    backup = guard.read_bytes()
    append(ledger, entry(1), entry(2))
    signed = guard.read_bytes()
    rewind(ledger.engine, 1)
    guard.write_bytes(backup)
    append(ledger, entry(8), entry(9), entry(10))  # the other history, longer than the first
    guard.write_bytes(signed)
    called: list[Transaction] = []
    for refused in (
        lambda: load_ledger(settings, ledger.engine),
        lambda: ledger.transact(called.append),
        lambda: append(ledger, entry(7)),
    ):
        with pytest.raises(ForkedError, match="restore the database"):
            refused()
    assert called == []
    assert ledger.latest().size == 4


def test_one_key_on_two_databases_signs_one_history(
    settings: Settings, ledger: Ledger, tmp_path: Path, sqlite_template: Path
) -> None:
    append(ledger, entry(0))
    shutil.copy(sqlite_template, tmp_path / "second.db")
    keys = ledger.signers, SigningGuard(tmp_path / "aside.json"), ledger.entry_key
    second = Ledger(
        make_engine(f"sqlite:///{tmp_path / 'second.db'}"), keys[0], ledger.guard, keys[2]
    )
    Ledger(second.engine, *keys).begin()
    append(Ledger(second.engine, *keys), entry(0))
    assert append(second, entry(1)) == [1]  # the same history, one entry further
    with pytest.raises(RolledBackError):
        append(ledger, entry(2))
    second.engine.dispose()


def test_keys_restored_from_a_backup_catch_up_with_the_log(
    settings: Settings, ledger: Ledger
) -> None:
    append(ledger, entry(0))
    guard = settings.keys_dir / "log.guard.json"
    backup = guard.read_bytes()
    append(ledger, entry(1))
    guard.write_bytes(backup)
    again = load_ledger(settings, ledger.engine)
    assert again.guard.read().size == 2


def _lose_log(engine: Engine) -> None:
    tamper(engine, *(f"DELETE FROM {table}" for table in ("log_entries", "log_nodes")))
    tamper(engine, "DELETE FROM log_checkpoints")


def _without(name: str) -> Callable[[Settings, Engine], Settings]:
    def damage(settings: Settings, engine: Engine) -> Settings:
        (settings.keys_dir / name).unlink()
        return settings

    return damage


def _with_other_log_key(settings: Settings, engine: Engine) -> Settings:
    (settings.keys_dir / "log.key").write_text(private_pem(generate_key("ed25519")))
    return settings


def _with_wrong_kind_of_key(settings: Settings, engine: Engine) -> Settings:
    shutil.copy(settings.keys_dir / "issuer.key", settings.keys_dir / "log.key")
    return settings


def _with_no_key_in_the_file(settings: Settings, engine: Engine) -> Settings:
    (settings.keys_dir / "log.key").write_text("-----BEGIN PRIVATE KEY-----\n")
    return settings


def _renamed(settings: Settings, engine: Engine) -> Settings:
    return settings.model_copy(update={"origin": "ledger.test/other"})


def _without_log(settings: Settings, engine: Engine) -> Settings:
    _lose_log(engine)
    return settings


def _never_begun(settings: Settings, engine: Engine) -> Settings:
    _lose_log(engine)
    (settings.keys_dir / "log.guard.json").unlink()
    return settings


def _with_another_root_stored(settings: Settings, engine: Engine) -> Settings:
    tamper(engine, "UPDATE log_checkpoints SET root = (SELECT leaf FROM log_entries)")
    return settings


def _with_an_unmigrated_database(settings: Settings, engine: Engine) -> Settings:
    tamper(engine, "DELETE FROM alembic_version")
    return settings


def _with_an_older_schema(settings: Settings, engine: Engine) -> Settings:
    tamper(engine, "UPDATE alembic_version SET version_num = '0001'")
    return settings


def _with_a_newer_schema(settings: Settings, engine: Engine) -> Settings:
    tamper(engine, "UPDATE alembic_version SET version_num = '9999'")
    return settings


REFUSED = {
    "no-log-key": (_without("log.key"), "key-missing", "restore the keys directory"),
    "no-guard": (_without("log.guard.json"), "log-guard-missing", "lethe log init"),
    "another-log-key": (_with_other_log_key, "log-forked", "restore the keys"),
    "a-log-key-of-another-kind": (_with_wrong_kind_of_key, "key-missing", "Ed25519"),
    "a-log-key-that-is-none": (_with_no_key_in_the_file, "key-missing", "PEM"),
    "another-origin": (_renamed, "log-forked", "LETHE_ORIGIN back"),
    "no-log-in-the-database": (_without_log, "log-missing", "restore its database"),
    "no-log-ever": (_never_begun, "log-missing", "lethe log init"),
    "another-root": (_with_another_root_stored, "log-forked", "signed note"),
    "no-schema": (_with_an_unmigrated_database, "schema", "lethe migrate"),
    "older-schema": (_with_an_older_schema, "schema", "lethe migrate"),
    "newer-schema": (_with_a_newer_schema, "schema", "upgrade"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_log_that_does_not_belong_to_its_keys_is_not_started(
    settings: Settings, ledger: Ledger, case: str
) -> None:
    append(ledger, entry(0))
    damage, slug, remedy = REFUSED[case]
    damaged = damage(settings, ledger.engine)
    with pytest.raises(LetheError, match=remedy) as refused:
        load_ledger(damaged, ledger.engine)
    assert refused.value.slug == slug


def test_a_database_that_does_not_answer_is_named_without_its_url(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path}/absent/secret.db")
    with pytest.raises(UnreachableDatabaseError) as refused:
        require_schema(engine)
    assert "secret" not in refused.value.detail


def test_an_empty_database_is_not_migrated(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url)
    with pytest.raises(SchemaError, match="lethe migrate"):
        require_schema(engine)
    engine.dispose()


def test_the_issuer_key_must_be_on_p256(settings: Settings, ledger: Ledger) -> None:
    shutil.copy(settings.keys_dir / log_files.LOG_KEY, settings.keys_dir / startup.ISSUER_KEY)
    with pytest.raises(KeyMissingError, match="P-256"):
        load_issuer(settings)
