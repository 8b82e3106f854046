"""`lethe backup`, `lethe restore` and `lethe log recover`: losses, and erasures that stay."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import delete
from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app import steps
from app.backup import archive
from app.backup import rows as backup_rows
from app.backup.archive import read_manifest
from app.backup.errors import BackupError
from app.backup.folder import Folder
from app.backup.reapply import ENDED
from app.backup.restore import restore as restore_backup
from app.cli.backup import backup, restore
from app.cli.service_key import service_key
from app.ledger import storage
from app.ledger.guard import RolledBackError, SigningGuard
from app.ledger.sequencer import Ledger
from app.ledger.startup import GUARD, RESTORED
from app.service.context import open_services
from app.service.desk import people
from app.settings import Settings
from app.steps import PlantedFaultError
from app.vault.journal import FILE as JOURNAL
from app.vault.journal import JournalError
from app.vault.master import RootSecret
from lethe.cli.log import log
from lethe.errors import LetheError
from lethe.files import write_durably
from lethe.identity import Identity, digests
from lethe.log.fetch import MissingFileError
from lethe.log.follow import mirror_log
from lethe.signing.keys import PrivateKey
from migrations import HEAD
from models import (
    Artifact,
    Audit,
    AuditPair,
    ErasureRequest,
    LogEntry,
    Model,
    Record,
    Subject,
    Tombstone,
)
from models.database.session import make_engine, opened_engine
from models.database.types import seal_columns, utcnow
from tests.conftest import fresh_database
from tests.installation import Installation, install
from tests.small import MODEL, ROWS
from workers.errors import RefusedError
from workers.jobs import execute
from workers.leases.lease import JobContext


@dataclass
class Disaster:
    """An installation that made a backup, then erased r1 and r2, then lost its database."""

    backup: Path
    keys: Path  # a copy of the keys from the time of the backup
    mirror: Path
    old: Settings
    new: Settings
    ref: str


@pytest.fixture
def elsewhere(
    request: pytest.FixtureRequest, settings: Settings, tmp_path: Path
) -> Iterator[str]:
    """An empty database of the same kind."""
    if settings.resolved_database_url.startswith("sqlite"):
        yield f"sqlite:///{tmp_path / 'elsewhere.db'}"
        return
    with fresh_database(request.getfixturevalue("postgres")) as url:
        yield url.render_as_string(hide_password=False)


@pytest.fixture
def disaster(
    settings: Settings,
    ledger: Ledger,
    fitted: PrivateKey,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Disaster:
    new = settings.model_copy(update={"database_url": elsewhere, "data_dir": tmp_path / "new"})
    made = Disaster(tmp_path / "b", tmp_path / "k", tmp_path / "m", settings, new, "")
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    point_at(settings, monkeypatch)
    with install(settings) as installed:
        installed.caller.key = fitted
        told = run(backup, "new", str(made.backup), "--keys", str(made.keys))
        assert told.exit_code == 0, told.output
        assert "not included: requests and entries after this moment" in told.output
        erase(installed, "r1", "r2")
        mirror(installed, made.mirror)
        with Session(installed.services.engine) as session:
            made.ref = session.exec(select(ErasureRequest.ref)).one()
    shutil.copytree(settings.keys_dir, new.keys_dir)  # the keys were not lost
    point_at(new, monkeypatch)
    return made


def point_at(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_DATABASE_URL", settings.resolved_database_url)
    monkeypatch.setenv("LETHE_DATA_DIR", str(settings.data_dir))


def run(command: Any, *arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def detail(result: Result) -> str:
    assert isinstance(result.exception, LetheError), (result.output, result.exception)
    return result.exception.detail


def erase(installed: Installation, *records: str) -> None:
    assert installed.caller.erase_records(*records).status_code == 202
    installed.drain()
    installed.check()


def mirror(installed: Installation, directory: Path) -> None:
    def fetch(path: str) -> bytes:
        answer = installed.caller.http.get(f"/v1/log/{path}")
        if answer.status_code != 200:
            raise MissingFileError(path)
        return bytes(answer.content)

    mirror_log(fetch, installed.services.ledger.verifier, directory)


@contextmanager
def rows(settings: Settings) -> Iterator[Session]:
    engine = make_engine(settings.resolved_database_url)
    seal_columns(engine, RootSecret.load(settings))
    with Session(engine) as session:
        yield session
    engine.dispose()


def stored(settings: Settings) -> set[str]:
    with rows(settings) as session:
        return {str(record) for record in session.exec(select(Record.record)).all()}


def test_an_older_backup_brings_nobody_back(disaster: Disaster) -> None:
    new = disaster.new
    told = run(restore, str(disaster.backup))
    assert told.exit_code == 0, (told.output, told.exception)
    assert "erased again: 2 records" in told.output
    assert f"model {MODEL} is quarantined" in told.output
    assert disaster.ref in told.output
    assert not {"r1", "r2"} & stored(new)
    with rows(new) as session:
        assert len(session.exec(select(Tombstone)).all()) == 2
        assert session.exec(select(Model.state)).one() == "quarantined"
        size = len(session.exec(select(LogEntry.index)).all())
        sealed = select(Artifact.kind).where(col(Artifact.wrapped_key).is_not(None))
        kinds = set(session.exec(sealed).all())
        assert not {"head", "state"} & kinds
    held = SigningGuard(new.keys_dir / GUARD).read()
    assert f"{held.size - size} log entries were signed after this backup" in told.output
    with pytest.raises(RolledBackError):
        open_services(new)
    again = run(log, "recover", str(disaster.mirror))
    assert again.exit_code == 0, (again.output, again.exception)
    assert f"recovered {held.size - size} entries: the log has {held.size}" in again.output
    assert "1 certificates are in the log and not stored here" in again.output
    with install(new) as installed:
        assert installed.services.ledger.latest().size == held.size + 1  # model.quarantined
        answer = installed.caller.operator("GET", f"/v1/models/{MODEL}").json()
        assert answer["state"] == "quarantined"
        mirror(installed, disaster.mirror)  # it extends what the mirror saw
    assert not {"r1", "r2"} & stored(new)


def test_a_restored_model_is_mended_where_all_its_rows_are_left(
    settings: Settings,
    ledger: Ledger,
    fitted: PrivateKey,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client was erased since, so no remaining block contained one of its rows."""
    new = settings.model_copy(update={"database_url": elsewhere, "data_dir": tmp_path / "new"})
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    point_at(settings, monkeypatch)
    with install(settings) as installed:
        installed.caller.key = fitted
        assert run(backup, "new", str(tmp_path / "b")).exit_code == 0
        answer = installed.caller.erase({"level": "client", "client": "c1"})
        assert answer.status_code == 202, answer.text
        installed.drain()
        path = f"/v1/models/{MODEL}/versions/current"
        erased = installed.caller.operator("GET", path).json()
        mirror(installed, tmp_path / "m")
    shutil.copytree(settings.keys_dir, new.keys_dir)
    point_at(new, monkeypatch)
    assert run(restore, str(tmp_path / "b")).exit_code == 0
    assert run(log, "recover", str(tmp_path / "m")).exit_code == 0
    with install(new) as installed:
        quarantined = installed.caller.operator("GET", f"/v1/models/{MODEL}").json()
        assert quarantined["state"] == "quarantined"
        answer = installed.caller.operator("POST", f"/v1/models/{MODEL}/mend")
        assert answer.status_code == 202, answer.text
        installed.drain()
        model = installed.caller.operator("GET", f"/v1/models/{MODEL}").json()
        assert (model["state"], model["failure"]) == ("ready", None)
        # It follows the version that the backup lacks, and has the same head.
        assert model["current_version"] == erased["number"] + 1
        mended = installed.caller.operator("GET", path).json()
        same = ("head", "statistics", "retained_root", "retained_count")
        assert [mended[name] for name in same] == [erased[name] for name in same]


@pytest.mark.parametrize(("ahead", "killed"), [(True, False), (False, False), (True, True)])
def test_whose_an_erased_record_was_does_not_come_back(
    settings: Settings,
    ledger: Ledger,
    fitted: PrivateKey,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ahead: bool,
    killed: bool,
) -> None:
    """A backup has identities of records erased after it. ahead: the log is newer too.

    killed: the process dies before it logs the identities erased again.
    """
    new = settings.model_copy(update={"database_url": elsewhere, "data_dir": tmp_path / "new"})
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    point_at(settings, monkeypatch)
    ann, bob = (Identity("email", digests("email", f"{name}@x.org")) for name in ("a", "b"))
    with install(settings) as installed:
        installed.caller.key = fitted
        listed = [("r1", ann), ("r2", bob)]
        assert people.import_identities(installed.services, MODEL, listed, "desk") == 2
        if ahead:
            assert run(backup, "new", str(tmp_path / "b")).exit_code == 0
        erase(installed, "r1")
        if not ahead:
            assert run(backup, "new", str(tmp_path / "b")).exit_code == 0
        mirror(installed, tmp_path / "m")
    shutil.copytree(settings.keys_dir, new.keys_dir)
    point_at(new, monkeypatch)
    told = run(restore, str(tmp_path / "b"))
    assert told.exit_code == 0, (told.output, told.exception)
    if ahead:
        if killed:

            def die(*_: object) -> None:
                raise PlantedFaultError

            monkeypatch.setattr("app.cli.log.log_people", die)
            with pytest.raises(PlantedFaultError):
                run(log, "recover", str(tmp_path / "m"))
        else:
            told = run(log, "recover", str(tmp_path / "m"))
            assert told.exit_code == 0, (told.output, told.exception)
    with install(new) as installed:
        with installed.services.reading() as session:
            model = session.exec(select(Model)).one()
        erased = people.find(installed.services, model, ann)
        assert (erased.learned, erased.erased) == ((), 1)
        kept = people.find(installed.services, model, bob)
        assert (kept.learned, kept.erased) == (("r2",), 0)


def test_without_the_journal_they_would_be_back(disaster: Disaster) -> None:
    """The planted violation: the journal is as old as the backup."""
    new = disaster.new
    shutil.copyfile(disaster.keys / JOURNAL, new.keys_dir / JOURNAL)
    assert run(restore, str(disaster.backup)).exit_code == 0
    assert {"r1", "r2"} <= stored(new)
    assert "the erasure journal lacks 1 requests" in detail(
        run(log, "recover", str(disaster.mirror))
    )
    with pytest.raises(RolledBackError):
        open_services(new)
    told = run(log, "recover", str(disaster.mirror), "--journal-incomplete")
    assert told.exit_code == 0, told.exception
    with rows(new) as session:
        assert session.exec(select(Model.state)).one() == "quarantined"


def put_back(old: Settings, *, tombstone: bool) -> None:
    """Restore a row under a complete log, beside its tombstone or instead of it."""
    with rows(old) as session:
        record = session.exec(select(Record)).first()
        assert record is not None
        values = record.model_dump(exclude={"id", "record"})
        session.add(Record(record="r1", **values))
        if not tombstone:
            session.connection().execute(delete(Tombstone))
        session.commit()


def test_a_database_from_before_an_erasure_stops_the_service(disaster: Disaster) -> None:
    old = disaster.old
    put_back(old, tombstone=False)
    with pytest.raises(JournalError, match="--journal-only"):
        open_services(old)
    with pytest.MonkeyPatch.context() as patch:
        point_at(old, patch)
        told = run(restore, "--journal-only")
    assert told.exit_code == 0, (told.output, told.exception)
    assert "r1" not in stored(old)
    open_services(old).close()


def test_a_record_put_back_beside_its_tombstone_is_found_and_erased(disaster: Disaster) -> None:
    old = disaster.old
    put_back(old, tombstone=True)
    with pytest.MonkeyPatch.context() as patch:
        point_at(old, patch)
        found = run(log, "fsck")
        assert found.exit_code == 1
        assert "1 records of model small are stored that the erasure journal" in found.output
        told = run(restore, "--journal-only")
        assert told.exit_code == 0, (told.output, told.exception)
        assert "r1" not in stored(old)
        assert "that the erasure journal" not in run(log, "fsck").output


def test_numbers_of_audits_that_came_back_with_a_record_go_with_it(disaster: Disaster) -> None:
    """Log-odds of single records, which the erasure had destroyed."""
    old = disaster.old
    put_back(old, tombstone=True)
    with rows(old) as session:
        model_id = session.exec(select(Model.id)).one()
        assert model_id is not None
        for state in ("reported", "running"):
            session.add(
                Audit(
                    id=state,
                    state=state,
                    config={},
                    model_id=model_id,
                    method="puf",
                    parallel=1,
                    every_days=0,
                )
            )
            session.flush()
            session.add(
                AuditPair(
                    audit_id=state,
                    pair=0,
                    done_at=utcnow(),
                    mac="m",
                    before="0x1p0",
                    after="0x1p1",
                    retrained="0x1p2",
                )
            )
        session.commit()
    with pytest.MonkeyPatch.context() as patch:
        point_at(old, patch)
        told = run(restore, "--journal-only")
    assert told.exit_code == 0, (told.output, told.exception)
    with rows(old) as session:
        pairs = session.exec(select(AuditPair)).all()
        left = {(one.before, one.after, one.retrained, one.mac) for one in pairs}
        assert left == {(None, None, None, None)}
        # A running audit computes them again, without the record.
        assert {one.audit_id: one.done_at is None for one in pairs} == {
            "reported": False,
            "running": True,
        }


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))


def test_a_mirror_with_a_flipped_leaf_recovers_nothing(disaster: Disaster) -> None:
    assert run(restore, str(disaster.backup)).exit_code == 0
    (bundle,) = (disaster.mirror / "tile" / "entries").rglob("*/*")
    flip(bundle)
    with rows(disaster.new) as session:
        before = len(session.exec(select(LogEntry.index)).all())
    assert "is not that of the entry" in detail(run(log, "recover", str(disaster.mirror)))
    with rows(disaster.new) as session:
        assert len(session.exec(select(LogEntry.index)).all()) == before


def test_a_mirror_that_is_short_recovers_nothing(disaster: Disaster) -> None:
    """It lacks one entry, which the guard has."""
    with install(disaster.old) as installed:
        assert installed.caller.register_key(keyid="another").status_code == 201
        assert installed.caller.register_model(ref="second").status_code == 201
    shutil.copyfile(disaster.old.keys_dir / GUARD, disaster.new.keys_dir / GUARD)
    assert run(restore, str(disaster.backup)).exit_code == 0
    said = detail(run(log, "recover", str(disaster.mirror)))
    assert "are missing. Give another mirror" in said
    assert "lethe log init --succeeds" in said
    with pytest.raises(RolledBackError):
        open_services(disaster.new)


def test_a_mirror_of_another_log_is_refused(disaster: Disaster, tmp_path: Path) -> None:
    from tests.lethe.log import oracle
    from tests.lethe.log.logs import VERIFIER, fetch_files, log_files

    mirror_log(fetch_files(log_files(oracle.entries(40))), VERIFIER, tmp_path / "other")
    assert run(restore, str(disaster.backup)).exit_code == 0
    assert "no known key signed" in detail(run(log, "recover", str(tmp_path / "other")))


def test_keys_of_a_backup_sign_nothing_before_the_log_is_recovered(disaster: Disaster) -> None:
    """Their guard is older than entries with issued receipts."""
    new = disaster.new
    shutil.rmtree(new.keys_dir)
    assert run(restore, str(disaster.backup), "--keys", str(disaster.keys)).exit_code == 0
    guard = (new.keys_dir / GUARD).read_bytes()
    for command, *arguments in (
        (service_key, "rotate", "issuer"),
        (service_key, "rotate", "log"),
        (service_key, "rotate", "master"),
        (service_key, "revoke", "issuer", "issuer-1", "--reason", "key-compromise"),
        (restore, "--journal-only", "--yes"),
        (log, "init"),
    ):
        assert "run `lethe log recover`" in detail(run(command, *arguments)), arguments
    assert (new.keys_dir / GUARD).read_bytes() == guard
    told = run(log, "recover", str(disaster.mirror), "--journal-incomplete")
    assert told.exit_code == 0, (told.output, told.exception)
    told = run(service_key, "rotate", "issuer")
    assert told.exit_code == 0, (told.output, told.exception)


def test_all_is_lost_but_the_backup_and_a_mirror(disaster: Disaster) -> None:
    """The keys come from the backup too: only the mirror shows the later entries."""
    new = disaster.new
    shutil.rmtree(new.keys_dir)
    told = run(restore, str(disaster.backup), "--keys", str(disaster.keys))
    assert told.exit_code == 0, (told.output, told.exception)
    for path in new.keys_dir.iterdir():
        assert path.stat().st_mode & 0o777 in (0o600, 0o644), path
    with pytest.raises(JournalError, match="lethe log recover"):
        open_services(new)
    held = SigningGuard(disaster.old.keys_dir / GUARD).read()
    told = run(log, "recover", str(disaster.mirror), "--journal-incomplete")
    assert told.exit_code == 0, (told.output, told.exception)
    assert f"the log has {held.size}" in told.output
    assert not (new.keys_dir / RESTORED).exists()
    services = open_services(new)
    assert services.ledger.latest().size >= held.size
    services.close()


def test_keys_of_a_restore_that_was_killed_do_not_tell_who_was_erased_since(
    disaster: Disaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copied journal has an erasure whose entry the backup and the copied guard lack."""
    new = disaster.new
    shutil.rmtree(new.keys_dir)
    shutil.copyfile(disaster.old.keys_dir / JOURNAL, disaster.keys / JOURNAL)

    def die(*_: object) -> None:
        raise PlantedFaultError

    arguments = str(disaster.backup), "--keys", str(disaster.keys)
    with monkeypatch.context() as patch:
        patch.setattr("app.backup.restore.upgrade", die)
        with pytest.raises(PlantedFaultError):
            run(restore, *arguments)
    assert "drop --keys" in detail(run(restore, *arguments))
    told = run(restore, str(disaster.backup))
    assert told.exit_code == 0, (told.output, told.exception)
    assert "before serving run `lethe log recover` with every mirror" in told.output
    assert not {"r1", "r2"} & stored(new)


def test_a_part_of_the_keys_is_not_restored_with(
    disaster: Disaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = disaster.new
    shutil.rmtree(new.keys_dir)
    honest = write_durably

    def die(path: Path, data: bytes, **more: Any) -> None:
        if path.name == "revoked.list":
            raise PlantedFaultError
        honest(path, data, **more)

    arguments = str(disaster.backup), "--keys", str(disaster.keys)
    with monkeypatch.context() as patch:
        patch.setattr("app.backup.restore.write_durably", die)
        with pytest.raises(PlantedFaultError):
            run(restore, *arguments)
    for again in (arguments, arguments[:1]):
        assert "remove that directory, and run this again with --keys" in detail(
            run(restore, *again)
        )
    shutil.rmtree(new.keys_dir)
    assert run(restore, *arguments).exit_code == 0


def test_a_line_without_end_is_not_read_into_memory(disaster: Disaster) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.backup.restore.MOST_LINE", 300)
        assert "a line of more than 300 bytes" in detail(run(restore, str(disaster.backup)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.backup.restore.LONG", 300)
        patch.setattr("app.backup.restore.MOST_COMMAS", 3)
        assert "a line of more than 300 bytes" in detail(run(restore, str(disaster.backup)))
    assert run(restore, str(disaster.backup)).exit_code == 0


def test_nothing_is_overwritten_and_nothing_damaged_is_restored(disaster: Disaster) -> None:
    assert "keys are never overwritten" in detail(
        run(restore, str(disaster.backup), "--keys", str(disaster.keys))
    )
    flip(disaster.backup / "database.jsonl")
    assert "not the file that was backed up" in detail(run(restore, str(disaster.backup)))
    flip(disaster.backup / "database.jsonl")
    assert run(restore, str(disaster.backup)).exit_code == 0
    mirrored = run(log, "recover", str(disaster.mirror))
    assert mirrored.exit_code == 0, mirrored.exception
    assert "exists" in detail(run(backup, "new", str(disaster.backup)))
    artifacts = disaster.new.data_dir / "artifacts"
    assert "is not empty" in detail(run(restore, str(disaster.backup)))
    shutil.rmtree(artifacts)
    assert "the database is not empty" in detail(run(restore, str(disaster.backup)))
    (disaster.backup / "manifest.json").unlink()
    assert "not a backup, or an incomplete one" in detail(run(restore, str(disaster.backup)))


def test_a_backup_of_now_restores_to_the_same_installation(
    settings: Settings,
    ledger: Ledger,
    fitted: PrivateKey,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    point_at(settings, monkeypatch)
    assert run(backup, "new", str(tmp_path / "b")).exit_code == 0
    assert not any(path.name.endswith(".key") for path in (tmp_path / "b").rglob("*"))
    new = settings.model_copy(update={"database_url": elsewhere, "data_dir": tmp_path / "new"})
    shutil.copytree(settings.keys_dir, new.keys_dir)
    point_at(new, monkeypatch)
    told = run(restore, str(tmp_path / "b"))
    assert told.exit_code == 0, (told.output, told.exception)
    assert "nothing was signed after this backup" in told.output
    with install(new) as installed:
        installed.caller.key = fitted
        installed.check()
        erase(installed, "r1")  # every part works: rows, keys, sequences
    assert len(stored(new)) == ROWS - 1


def test_a_file_that_is_destroyed_while_a_backup_is_written_is_in_it(
    running: Installation, elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows name it: a worker learned the upload after they were read."""
    assert running.caller.register_model(ref="other").status_code == 201

    def then_learned(*call: Any) -> int:
        count = honest(*call)
        running.drain()
        return count

    honest = backup_rows.dump
    monkeypatch.setattr(backup_rows, "dump", then_learned)
    old = running.settings
    archive.write_backup(old, running.services.engine, tmp_path / "b")
    new = old.model_copy(update={"database_url": elsewhere, "data_dir": tmp_path / "new"})
    shutil.copytree(old.keys_dir, new.keys_dir)
    with opened_engine(elsewhere) as engine:
        restore_backup(new, engine, tmp_path / "b")
        assert without_file(engine, new) == set()


def test_a_file_that_is_destroyed_before_the_moment_of_a_backup_is_not_in_it(
    running: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is destroyed after it was copied, another, of the snapshot, before."""
    assert running.caller.register_model(ref="other").status_code == 201
    source = running.settings.data_dir / "artifacts"
    honest, lost = archive.copy_artifact, source / "lost"
    sizes: list[int] = []

    def snapshot(session: Session) -> int:
        if not sizes:
            running.drain()
        sizes.append(storage.read_size(session))
        if len(sizes) == 1:
            lost.write_bytes(b"a draft")
        return sizes[-1]

    def removed(path: Path, folder: Folder) -> str | None:
        if path == lost:
            path.unlink()
        return honest(path, folder)

    monkeypatch.setattr(archive, "storage", SimpleNamespace(read_size=snapshot))
    monkeypatch.setattr(archive, "copy_artifact", removed)
    archive.write_backup(running.settings, running.services.engine, tmp_path / "b")
    assert len(sizes) == 2, "rows of the first moment could name the lost file"
    names = {path.name for path in (tmp_path / "b" / "artifacts").iterdir()}
    assert names == {path.name for path in source.iterdir()}
    assert len(read_manifest(tmp_path / "b")[1]) == len(names) + 1


def without_file(engine: Engine, settings: Settings) -> set[str]:
    """Return the artifacts that have a key and no file."""
    live = select(Artifact.id).where(col(Artifact.wrapped_key).is_not(None))
    with Session(engine) as session:
        named = set(session.exec(live))
    return named - {path.name for path in (settings.data_dir / "artifacts").iterdir()}


def test_the_journal_holds_tags_only(disaster: Disaster) -> None:
    lines = (disaster.old.keys_dir / JOURNAL).read_text().splitlines()
    assert lines
    said = [json.loads(line) for line in lines]
    assert {name for line in said for name in line} <= {
        "before", "number", "model", "erased", "keys", "requests",
    }  # fmt: skip
    assert sum(len(line.get("erased", ())) for line in said) == 2
    with rows(disaster.old) as session:
        subjects = session.exec(select(Subject)).all()
    text = "\n".join(lines)
    for subject in subjects:
        assert f'"{subject.client}"' not in text
        assert f'"{subject.subject}"' not in text
    assert '"r1"' not in text
    assert ENDED not in text


def test_a_log_that_cannot_go_on_is_succeeded(
    disaster: Disaster, elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from migrations.runner import upgrade

    fresh = tmp_path / "fresh"
    monkeypatch.setenv("LETHE_DATA_DIR", str(fresh))
    monkeypatch.setenv("LETHE_ORIGIN", "ledger.test/second")
    engine = make_engine(elsewhere)
    upgrade(engine)
    engine.dispose()
    told = run(log, "init", "--succeeds", str(disaster.old.keys_dir))
    assert told.exit_code == 0, (told.output, told.exception)
    assert f"it succeeds the log {disaster.old.origin}" in told.output
    new = Settings()
    held = SigningGuard(disaster.old.keys_dir / GUARD).read()
    with install(new) as installed:
        installed.check()
        mirror(installed, tmp_path / "second")
    vkey = str(new.keys_dir / "log.vkey")
    told = run(log, "verify", str(tmp_path / "second"), "--vkey", vkey)
    assert f"succeeds the log {held.origin} at size {held.size}" in told.output


def test_of_a_batch_that_did_not_commit_only_what_is_executed_later_counts(
    settings: Settings,
    ledger: Ledger,
    fitted: PrivateKey,
    elsewhere: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both lines are on disk; then one of the two requests is refused, the other executed."""
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    point_at(settings, monkeypatch)
    both = {"batch_min_requests": 2, "batch_max_wait_seconds": 0}
    with install(settings.model_copy(update=both)) as made:
        made.caller.key = fitted
        refused, executed = (
            made.caller.erase_records(record).json()["id"] for record in ("r1", "r2")
        )
        steps.plant("execute.journaled=raise")
        try:
            with pytest.raises(steps.PlantedFaultError):
                made.drain()
        finally:
            steps.install(None)
        honest = execute.erase

        def refusing(job: JobContext) -> None:
            if job.lease.request_id == refused:
                raise RefusedError("the method lacks what it needs")
            honest(job)

        monkeypatch.setattr(execute, "erase", refusing)
        made.recover()
        made.drain()
        states = [
            made.caller.http.get(f"/v1/requests/{name}").json()["state"]
            for name in (refused, executed)
        ]
        assert states == ["refused", "certified"]
    before = stored(settings)
    assert {"r1", "r2"} & before == {"r1"}
    open_services(settings).close()
    told = run(restore, "--journal-only")
    assert told.exit_code == 0, (told.output, told.exception)
    assert "erased again: 0 records, 0 keys" in told.output
    assert stored(settings) == before
    assert run(backup, "new", str(tmp_path / "after")).exit_code == 0
    new = settings.model_copy(update={"database_url": elsewhere, "data_dir": tmp_path / "n"})
    shutil.copytree(settings.keys_dir, new.keys_dir)
    point_at(new, monkeypatch)
    assert run(restore, str(tmp_path / "after")).exit_code == 0
    assert stored(new) == before


@pytest.mark.parametrize(
    "said", [b"[" * 9999, b'{"files": {"artifacts/%s": "0"}}' % (b"a" * 300)]
)
def test_a_manifest_that_nobody_wrote_is_refused(tmp_path: Path, said: bytes) -> None:
    """Too deep for JSON, or a name too long for a file system: an error, no traceback."""
    whole = {"at": "", "origin": "", "root": "", "rows": 0, "schema": HEAD, "size": 0}
    if said.startswith(b"{"):
        said = json.dumps({**json.loads(said), **whole}).encode()
    (tmp_path / "manifest.json").write_bytes(said)
    with pytest.raises(BackupError, match="use another backup"):
        read_manifest(tmp_path)


def test_a_backup_whose_log_was_changed_is_not_restored(
    disaster: Disaster, tmp_path: Path
) -> None:
    """Its rows have no executed request, so no line of the journal would be replayed."""
    with pytest.MonkeyPatch.context() as patch:
        point_at(disaster.old, patch)
        assert run(backup, "new", str(tmp_path / "later")).exit_code == 0
    path = tmp_path / "later" / "database.jsonl"
    honest = path.read_bytes()
    changed = honest.replace(b'"request.executed"', b'"request.withheld"')
    assert changed != honest
    path.write_bytes(changed)
    manifest = tmp_path / "later" / "manifest.json"
    said = manifest.read_bytes()
    before, after = (hashlib.sha256(data).hexdigest().encode() for data in (honest, changed))
    assert before in said
    manifest.write_bytes(said.replace(before, after))
    assert "other log entries than those that were written" in detail(
        run(restore, str(tmp_path / "later"))
    )
