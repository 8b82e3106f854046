"""What must hold after a fault, once everything was started again and had its time."""

from collections import Counter
from dataclasses import asdict, dataclass, field

from sqlmodel import Session, col, func, select

from app.backup.check import fsck_installation
from app.ledger.sequencer import Ledger
from app.reconcile.case_parts import OPENED as OPENED_CASE
from app.service.desk.cases import CLOSED_CASE
from app.settings import Settings
from benchmarks.faults.acknowledged import Acknowledged, missing
from benchmarks.faults.clients import OTHER
from benchmarks.faults.workload import Workload
from lethe.certificates.audits.counts import REPORTED, STARTED
from lethe.log.key_changes import MASTER_REVOKED, MASTER_ROTATED
from models import (
    Certificate,
    ErasureRequest,
    LogEntry,
    Model,
    ModelVersion,
    Record,
    RequestEvent,
    SiloTask,
    Tombstone,
)

# Events that the log may have once for each request, model or key; `kind` of a certificate.
ONCE = (
    "request.received",
    "request.withdrawn",
    "request.approved",
    "request.certified",
    "model.registered",
    "model.deleted",
    "key.registered",
    "model.released",
)
# Events that the log may have once for each operator or officer who did the same.
EACH_ONCE = (STARTED, REPORTED, OPENED_CASE, CLOSED_CASE)
# Each is of another key, and no ref names them.
KEYS_ONCE = ("key.rotated", "key.revoked", MASTER_ROTATED, MASTER_REVOKED)


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
    settings: Settings,
    ledger: Ledger,
    workload: Workload,
    told: Acknowledged,
    *,
    beside: bool = False,
    actors: int = 1,
) -> Judgement:
    """Compare what clients were told with what is stored, and what is stored with itself.

    beside: two did the same at once. actors: how many did the same in all, none of them because
    another had failed.
    """
    found = Judgement()
    with Session(ledger.engine) as session:
        for kind, value in told:
            if (why := missing(settings, ledger, session, kind, value)) is not None:
                found.lost.append(f"{kind}: {why}")
        rotations = 2 if beside and workload.each else 1
        found.duplicated += doubled(session, rotations, actors * workload.cases)
        found.duplicated += workload.doubled(session, settings)
        stored = session.exec(select(func.count()).select_from(ErasureRequest)).one()
        if stored > workload.requests:
            found.duplicated.append(f"{stored} requests are stored of {workload.requests}")
        _unfinished(session, workload, found)
    report = fsck_installation(settings, ledger)
    found.fsck_failures += [f"{one.check}: {one.detail}" for one in report.findings]
    return found


def doubled(session: Session, rotations: int = 1, actors: int = 1) -> list[str]:
    """Return what the log or a model has twice, and certificates that only the log has.

    rotations: of one kind of key, that the log may have. actors: how many cases may be opened,
    or audits started.
    """
    found = []
    entries = select(LogEntry.event, LogEntry.ref).where(col(LogEntry.event).in_(ONCE))
    for (event, ref), number in Counter(session.exec(entries).all()).items():
        if number > 1:
            found.append(f"{event} of {ref}: {number} entries")
    for event in (*KEYS_ONCE, *EACH_ONCE):
        count = select(func.count()).where(LogEntry.event == event)
        most = rotations if event in KEYS_ONCE else actors
        if (number := session.exec(count).one()) > most:
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
    if tasks := session.exec(select(SiloTask.id)).all():
        found.stuck.append(f"{len(tasks)} tasks of silos are left of a job that is done")
    if workload.requests:
        named = select(Model.id).where(col(Model.ref).in_((workload.model, *workload.also)))
        own = select(func.count()).where(col(Record.model_id).in_(named))
        kept = session.exec(own).one()
        gone = session.exec(select(func.count()).select_from(Tombstone)).one()
        if (kept, gone) != (workload.rows - workload.records, workload.records):
            found.stuck.append(f"{kept} records are left, and {gone} tombstones there")
    if workload.name == "register":
        numbers = session.exec(
            select(ModelVersion.number)
            .join(Model, col(Model.id) == col(ModelVersion.model_id))
            .where(Model.ref == OTHER)
        ).all()
        if numbers != [1]:
            found.duplicated.append(f"the model that was registered has versions {numbers}")
