"""Every change planted in the stores of a certified erasure is found: a row, a bit, a file."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlmodel import Session, select

from app.reconcile.findings import FsckReport
from app.reconcile.fsck.journal import fsck_journal
from app.reconcile.fsck.run import fsck
from app.reconcile.fsck.vault import fsck_vault
from lethe.signing.keys import PrivateKey
from models import Artifact, Certificate
from tests.app.ledger.samples import tamper
from tests.installation import Installation


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: copied before each change, and restored."""
    return sqlite_url


@pytest.fixture
def certified(installation: Installation, with_certificate: PrivateKey) -> Installation:
    """A ridge head of which records r1 and r2 were erased by two requests, and r3 claimed."""
    installation.caller.key = with_certificate
    assert installation.caller.erase_records("r2").status_code == 202
    installation.drain()
    assert installation.caller.erase_records("r3").status_code == 202
    installation.check()
    return installation


def found(installation: Installation) -> list[str]:
    """Return the names of fsck's findings, and check that they name nobody."""
    services = installation.services
    report: FsckReport = fsck(services.ledger)
    fsck_vault(services.engine, services.artifacts, services.root_secret, report)
    fsck_journal(services.engine, services.root_secret, services.journal, report)
    with Session(services.engine) as session:
        secret = [*session.exec(select(Certificate.request_id)), "r1", "r2", "r3"]
    words = {word for finding in report.findings for word in finding.detail.split()}
    assert not words & set(secret)
    return sorted({finding.check for finding in report.findings})


FIRST = "(select min(log_index) from certificates)"
EVIDENCE = "(select evidence_id from verifications limit 1)"
LAST = "(select max(id) from model_versions)"
SOME = "(select min(id) from records)"
SEALED = (
    # The erased record's id, which an attacker with a copy of its row can write again.
    "sealed(r1)"
)
PLANTED: dict[str, tuple[list[str], list[str]]] = {
    "an open request's deadline": (
        ["update erasure_requests set due_at = '2099-01-01 00:00:00' where state = 'received'"],
        ["request"],
    ),
    "a certificate's result": (
        [f"update certificates set result = 'FAIL' where log_index = {FIRST}"],
        ["certificate"],
    ),
    "a certificate's id": (
        [f"update certificates set id = 'x' where log_index = {FIRST}"],
        ["certificate"],
    ),
    "a certificate's issuer": (
        [f"update certificates set issuer_keyid = 'x' where log_index = {FIRST}"],
        ["certificate"],
    ),
    "a certificate's time": (
        [f"update certificates set issued_at = '2020-01-01' where log_index = {FIRST}"],
        ["certificate"],
    ),
    "evidence destroyed": (
        [f"update artifacts set wrapped_key = null where id = {EVIDENCE}"],
        ["certificate", "file"],
    ),
    "evidence under another name": (
        [f"update artifacts set digest = '{'0' * 64}' where id = {EVIDENCE}"],
        ["certificate", "file"],
    ),
    "a verification removed": (
        [f"delete from verifications where evidence_id = {EVIDENCE}"],
        ["certificate", "file"],
    ),
    "a verification's result": (
        [f"update verifications set result = 'FAIL' where evidence_id = {EVIDENCE}"],
        ["certificate"],
    ),
    "a verification's report": (
        [f"update verifications set report = '{{}}' where evidence_id = {EVIDENCE}"],
        ["certificate"],
    ),
    "a head destroyed": (
        [
            "update artifacts set wrapped_key = null where id = "
            f"(select head_id from model_versions where id = {LAST})"
        ],
        ["head"],
    ),
    "another head": (
        [
            "update model_versions set head_id = "
            f"(select min(head_id) from model_versions where id < {LAST}) where id = {LAST}"
        ],
        ["file", "head"],
    ),
    "a state under another name": (
        [f"update model_versions set state_id = head_id where id = {LAST}"],
        ["file"],
    ),
    "a version's digest": (
        [f"update model_versions set head_digest = '{'0' * 64}' where id = {LAST}"],
        ["certificate", "version"],
    ),
    "a version's rows": (
        [f"update model_versions set statistics_digest = 'x' where id = {LAST}"],
        ["version"],
    ),
    "a version's entry": (
        [f"update model_versions set log_index = log_index + 1 where id = {LAST}"],
        ["version"],
    ),
    "a version's retained set": (
        [f"update model_versions set retained_root = x'00' where id = {LAST}"],
        ["record", "version"],
    ),
    "a model's configuration": (
        ["update models set config = replace(config, 'penalty', 'Penalty')"],
        ["model"],
    ),
    "a model's extractor": (["update models set extractor = '{}'"], ["model"]),
    "a model's method": (["update models set method = 'ridge-sketched'"], ["model"]),
    "a model out of service": (["update models set state = 'quarantined'"], ["model"]),
    "a model at an older version": (
        ["update models set current_version = current_version - 1"],
        ["file", "head", "record", "version"],
    ),
    "a record removed": ([f"delete from records where id = {SOME}"], ["record"]),
    "a record renamed": (
        [f"update records set record = {SEALED} where id = {SOME}"],
        ["journal", "record", "tombstone"],
    ),
    "a record renamed without the key": (
        [f"update records set record = 'another' where id = {SOME}"],
        ["sealed"],
    ),
    "a record's salt": (
        [f"update records set salt = zeroblob(32) where id = {SOME}"],
        ["record"],
    ),
    "a record's content": (
        [f"update records set content = zeroblob(32) where id = {SOME}"],
        ["record"],
    ),
    "a record's commitment": (
        [f"update records set commitment = zeroblob(32) where id = {SOME}"],
        ["record"],
    ),
    "an erased record stored again": (
        [
            "insert into records (model_id, subject_id, record, salt, commitment, content) "
            f"select model_id, subject_id, {SEALED}, salt, zeroblob(32), content from records "
            f"where id = {SOME}",
        ],
        ["journal", "record", "tombstone"],
    ),
    "a record claimed by a closed request": (
        [
            "update records set claimed_by = (select request_id from certificates limit 1) "
            f"where id = {SOME}"
        ],
        ["record"],
    ),
    "a tombstone removed": (
        ["delete from tombstones where tag = (select min(tag) from tombstones)"],
        ["journal", "tombstone"],
    ),
    "a tombstone added": (
        ["insert into tombstones (model_id, tag) select id, zeroblob(32) from models"],
        ["journal"],
    ),
}


def test_each_plant_is_found_and_nothing_else(certified: Installation) -> None:
    engine = certified.services.engine
    path = Path(str(engine.url.database))
    honest = sqlite3.connect(":memory:")
    with sqlite3.connect(path) as stored:
        stored.backup(honest)
    r1 = certified.services.root_secret.seal_name(b"r1", b"records.record").hex()
    seen = {}
    for name, (statements, _) in PLANTED.items():
        tamper(engine, *(one.replace(SEALED, f"x'{r1}'") for one in statements))
        seen[name] = found(certified)
        engine.dispose()
        with sqlite3.connect(path) as stored:
            honest.backup(stored)
    assert seen == {name: wanted for name, (_, wanted) in PLANTED.items()}
    assert found(certified) == []


def removed(path: Path) -> None:
    path.unlink()


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["head", "evidence", "state"])
@pytest.mark.parametrize("change", [removed, flipped])
def test_a_missing_or_altered_file_is_found(
    certified: Installation, kind: str, change: Callable[[Path], None]
) -> None:
    with Session(certified.services.engine) as session:
        query = select(Artifact.id).where(Artifact.kind == kind)
        row = session.exec(query.where(Artifact.wrapped_key.is_not(None))).first()  # type: ignore[union-attr]
    change(certified.settings.data_dir / "artifacts" / str(row))
    assert found(certified) == ["file"]
