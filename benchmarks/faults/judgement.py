"""What must hold after a fault, once everything was started again and had its time."""

import base64
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlmodel import Session, col, func, select

from app.backup.archive import read_manifest
from app.backup.check import fsck_installation
from app.ledger.sequencer import Ledger
from app.settings import Settings
from benchmarks.faults.workloads import OTHER, Workload
from models import (
    Certificate,
    ErasureRequest,
    LogEntry,
    Model,
    ModelVersion,
    Record,
    RequesterKey,
    RequestEvent,
    Tombstone,
)
from tests.small import MODEL, ROWS

Acknowledged = list[tuple[str, Any]]
# Events that the log may have once for each request, model or key; `kind` of a certificate.
ONCE = (
    "request.received",
    "request.withdrawn",
    "request.certified",
    "model.registered",
    "model.deleted",
    "key.registered",
)


@dataclass
class Judgement:
    """What was found, each with a sentence."""

    lost: list[str] = field(default_factory=list)  # acknowledged, and not in the log
    duplicated: list[str] = field(default_factory=list)  # in the log, or certified, twice
    stuck: list[str] = field(default_factory=list)  # in no final state
    fsck_failures: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, list[str]]:
        """Return the sentences by what they are of."""
        return asdict(self)


def judge(
    settings: Settings, ledger: Ledger, workload: Workload, told: Acknowledged
) -> Judgement:
    """Compare what clients were told with what is stored, and what is stored with itself."""
    found = Judgement()
    with Session(ledger.engine) as session:
        for kind, value in told:
            if (why := missing(settings, session, kind, value)) is not None:
                found.lost.append(f"{kind}: {why}")
        found.duplicated += doubled(session)
        stored = session.exec(select(func.count()).select_from(ErasureRequest)).one()
        if stored > workload.requests:
            found.duplicated.append(f"{stored} requests are stored of {workload.requests}")
        _unfinished(session, workload, found)
    report = fsck_installation(settings, ledger)
    found.fsck_failures += [f"{one.check}: {one.detail}" for one in report.findings]
    return found


def missing(settings: Settings, session: Session, kind: str, value: Any) -> str | None:
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
        case "rotated":
            query = select(LogEntry.index).where(LogEntry.event == "key.rotated")
            if not session.exec(query).all():
                return "the log has no rotation"
        case "log-rotated":
            query = select(LogEntry.index).where(LogEntry.event == "key.revoked")
            if not session.exec(query).all():
                return "the log has no revocation of its older key"
        case "backup":
            try:
                read_manifest(settings.data_dir / value)
            except Exception as error:
                return f"the backup cannot be read: {error}"
    return None


def _entries(session: Session, event: str, ref: str) -> int:
    query = select(func.count()).where(LogEntry.event == event, LogEntry.ref == ref)
    return session.exec(query).one()


def doubled(session: Session) -> list[str]:
    """Return what the log or a model has twice, and certificates that only the log has."""
    found = []
    entries = select(LogEntry.event, LogEntry.ref).where(col(LogEntry.event).in_(ONCE))
    for (event, ref), number in Counter(session.exec(entries).all()).items():
        if number > 1:
            found.append(f"{event} of {ref}: {number} entries")
    for event in ("key.rotated", "key.revoked"):  # each of another key: no ref names them
        count = select(func.count()).where(LogEntry.event == event)
        if (number := session.exec(count).one()) > 1:
            found.append(f"{event}: {number} entries")
    certificates = set(session.exec(select(Certificate.log_index)))
    leaves = session.exec(select(LogEntry.index).where(LogEntry.kind == "hashedrekord")).all()
    if extra := set(leaves) - certificates:
        found.append(f"certificates in the log without one stored: {sorted(extra)}")
    versions = session.exec(select(ModelVersion.model_id, ModelVersion.number)).all()
    if len(versions) != len(set(versions)):
        found.append("two versions of a model have one number")
    return found


def _unfinished(session: Session, workload: Workload, found: Judgement) -> None:
    if not workload.ended(session):
        states = session.exec(select(ErasureRequest.state, ErasureRequest.reason)).all()
        models = session.exec(select(Model.ref, Model.state)).all()
        events = session.exec(select(RequestEvent.event)).all()
        found.stuck.append(f"requests {states}, models {models}, events {events}")
        return
    if workload.requests:
        model = session.exec(select(Model).where(Model.ref == MODEL)).one()
        own = select(func.count()).where(Record.model_id == model.id)
        left = session.exec(own).one()
        gone = session.exec(select(func.count()).select_from(Tombstone)).one()
        if (left, gone) != (ROWS - workload.records, workload.records):
            found.stuck.append(f"{left} records are left, and {gone} tombstones there")
    if workload.name == "register":
        numbers = session.exec(
            select(ModelVersion.number)
            .join(Model, col(Model.id) == col(ModelVersion.model_id))
            .where(Model.ref == OTHER)
        ).all()
        if numbers != [1]:
            found.duplicated.append(f"the model that was registered has versions {numbers}")
