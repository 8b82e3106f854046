"""What was acknowledged, and what is missing of it."""

import base64
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlmodel import Session, col, func, select
from sqlmodel.sql.expression import SelectOfScalar

from app.backup.archive import ARTIFACTS, read_manifest
from app.backup.check import fsck_installation
from app.backup.rehearse import rehearse
from app.ledger.sequencer import Ledger
from app.ledger.startup import GUARD, load_ledger
from app.reconcile.fsck.state import read_state
from app.service.access import silo_keys
from app.service.desk.cases import CLOSED_CASE
from app.settings import Settings
from app.vault.journal import FILE as JOURNAL
from app.vault.root import FILE as ROOT
from app.vault.root import read_roots
from benchmarks.faults import (
    auditors,
    background,
    called_back,
    operators,
    rounds,
    tables,
    visitors,
)
from lethe.certificates.audits.counts import REPORTED
from lethe.log.key_changes import MASTER_REVOKED
from lethe.witness.home import load
from models import (
    Audit,
    Case,
    Contribution,
    ErasureRequest,
    LegalHold,
    LogEntry,
    RequesterKey,
    WitnessedCheckpoint,
)
from models.database.session import opened_engine

Acknowledged = list[tuple[str, Any]]


def missing(
    settings: Settings, ledger: Ledger, session: Session, kind: str, value: Any
) -> str | None:
    """Return what is missing of something that was acknowledged."""
    match kind:
        case "request":
            request_id, index, leaf = value
            entry = session.get(LogEntry, index)
            if entry is None or entry.leaf != base64.b64decode(leaf):
                return f"the log's entry {index} is not that of the receipt"
            if session.get(ErasureRequest, request_id) is None:
                return "the request is not stored"
        case "withdrawn":
            request = session.get(ErasureRequest, value)
            if request is None or request.state != "withdrawn":
                return "the withdrawn request is not withdrawn"
        case "model":
            if not _entries(session, "model.registered", value):
                return f"the log has no registration of {value}"
        case "deleted":
            entry = session.get(LogEntry, value)
            if entry is None or entry.event != "model.deleted":
                return f"the log's entry {value} is no deletion"
        case "key" | "revoked":
            key = session.get(RequesterKey, value)
            if key is None or (kind == "revoked" and key.revoked_at is None):
                return f"the key {value} is not {'revoked' if kind == 'revoked' else 'there'}"
        case "contribution":
            contribution = session.get(Contribution, value)
            if contribution is None or contribution.state == "failed":
                return f"the contribution {value} was not learned"
        case "approved":
            if not _entries(session, "request.approved", value):
                return f"the log has no approval of {value}"
        case "case":
            case = session.get(Case, value)
            if case is None or not case.parts:
                return f"the case {value} is not stored"
        case "closed":
            case = session.get(Case, value)
            if case is None or case.closed_at is None or case.contact is not None:
                return f"the case {value} is not closed, or its contact address is there"
            closed = select(func.count()).where(col(Case.closed_at).is_not(None))
            logged = session.exec(_events(CLOSED_CASE)).one()
            if logged != (number := session.exec(closed).one()):
                return f"{number} cases are closed, and the log closes {logged}"
        case "audit":
            audit = session.get(Audit, value)
            if audit is None or not session.exec(_events(REPORTED)).one():
                return f"the log has no report of the audit {value}"
        case "mended":
            if not _entries(session, "model.released", value):
                return f"the log has no return of {value} to service"
        case "summed":
            return rounds.why_unsummed(settings, session)
        case "erased":
            return tables.why_kept(session, value)
        case "receipt":
            return visitors.why_unproven(session, value)
        case "taken-back":
            return visitors.why_open(session, value)
        case "exercised":
            return called_back.why_unasked(session, settings, value)
        case "agent-withdrew" | "fulfilled":
            state = "certified" if kind == "fulfilled" else "withdrawn"
            return called_back.why_not(session, value, state)
        case "released":
            hold = session.get(LegalHold, value)
            if hold is None or hold.released_at is None:
                return f"the hold {value} is not released"
        case "rotated":
            query = select(LogEntry.index).where(LogEntry.event == "key.rotated")
            if not session.exec(query).all():
                return "the log has no rotation"
        case "log-rotated":
            query = select(LogEntry.index).where(LogEntry.event == "key.revoked")
            if not session.exec(query).all():
                return "the log has no revocation of its older key"
        case _:
            try:
                return _of_commands(settings, ledger, session, kind, value)
            except Exception as error:
                return f"{value} cannot be read: {error!r}"
    return None


def _of_commands(
    settings: Settings, ledger: Ledger, session: Session, kind: str, value: Any
) -> str | None:
    """Return what is missing of what an operator's command, or a thread, said is done."""
    folder = settings.data_dir / str(value)
    match kind:
        case "master-rotated":
            revoked = select(LogEntry.index).where(LogEntry.event == MASTER_REVOKED)
            if not session.exec(revoked).all() or len(read_roots(settings.keys_dir)) != 1:
                return "two master keys open the root secret"
        case "silo-rotated":
            silo = operators.SILO
            own = silo_keys.read_private(silo_keys.private_path(settings, silo))
            if value not in {span.digest for span in silo_keys.spans(ledger)}:
                return f"the log does not name the key {value}"
            if own is None or own.public_key() != silo_keys.public_key(settings, silo):
                return "the silo's private key is not the one that is registered"
            if silo_keys.previous_path(settings, silo).exists():
                return "the key before still counts"
        case "backup":
            read_manifest(folder)
        case "followed":
            with TemporaryDirectory(dir=settings.data_dir) as scratch:
                damage = rehearse(settings, folder, Path(scratch)).damage
            copied = settings.data_dir / operators.COPIED
            other = [
                name
                for name in (ROOT, GUARD, JOURNAL)
                if (settings.keys_dir / name).read_bytes() != (copied / name).read_bytes()
            ]
            if damage or other:
                return f"{[one.detail for one in damage]}, other copies of {other}"
        case "restored" | "begun":
            own_settings = operators.elsewhere(settings, folder)
            with opened_engine(own_settings.resolved_database_url) as engine:
                own_ledger = load_ledger(own_settings, engine)
                report = fsck_installation(own_settings, own_ledger)
                size = own_ledger.latest().size
            if not report.ok:
                return f"fsck of {value}: {[one.detail for one in report.findings]}"
            if kind == "restored" and size < ledger.latest().size:
                return f"{value} has {size} entries of {ledger.latest().size}"
        case "checked":
            assert ledger.entry_key is not None
            if read_state(folder, ledger.entry_key) is None:
                return "nothing says what was verified"
        case "mirrored":
            return auditors.why_unfollowed(settings, ledger.verifier, value)
        case "evidence":
            if not auditors.has_evidence(settings, value):
                return f"the checkpoint {value} that proves an alarm was not kept"
        case "forked":
            return auditors.why_forgotten(settings, value)
        case "tidied":
            if (settings.data_dir / ARTIFACTS / value).exists():
                return f"the orphan {value} is still there"
        case "witnessed":
            sizes = value, -value  # negative: the quorum came later
            kinds = select(WitnessedCheckpoint.kind).where(
                col(WitnessedCheckpoint.size).in_(sizes)
            )
            stored = session.exec(kinds).all()
            if "quorum" not in stored and "later" not in stored:
                return f"the checkpoint of {value} entries has no quorum"
            witness = load(settings.data_dir / background.WITNESS)
            head = witness.heads.read(settings.origin)
            witness.heads.close()
            if head is None or head.size < value:
                return "the witness forgot what it cosigned"
    return None


def _events(event: str) -> SelectOfScalar[int]:
    return select(func.count()).where(LogEntry.event == event)


def _entries(session: Session, event: str, ref: str) -> int:
    query = select(func.count()).where(LogEntry.event == event, LogEntry.ref == ref)
    return session.exec(query).one()
