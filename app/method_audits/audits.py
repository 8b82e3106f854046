"""Method audits: start, stop, download the report and the numbers."""

import hashlib
import secrets
import uuid
from datetime import timedelta

from sqlmodel import Session, col, func, select

from app.ledger.journal import digest_of, record_model_event
from app.ledger.transaction import Transaction
from app.method_audits import views
from app.method_audits.reports import read_report
from app.problems import (
    AuditRefusedError,
    AuditRunningError,
    MethodUnavailableError,
    ModelNotReadyError,
    NotFoundError,
    NumbersChangedError,
    NumbersDestroyedError,
)
from app.schemas.audits import AuditView, NewAudit
from app.schemas.families.networks import PIXELS
from app.service.context import Services
from app.service.methods import offered
from app.service.models.registry import present as find_model
from lethe import canonical
from lethe.catalogue import TESTED
from lethe.certificates.audits.counts import (
    RUNNING,
    STARTED,
    STOPPED,
    audit_digest,
    method_digest,
)
from models import Audit, AuditPair, Model, Record

TASK = "audit"  # lethe.audit takes an audit's id and computes one of its pairs
SEED_BITS = 53  # RFC 8785 has no larger integers


def start(services: Services, wanted: NewAudit) -> AuditView:
    """Log an audit's configuration by its digest, and have its pairs computed.

    Raises:
        UnknownModelError: No such model.
        MethodUnavailableError: It is no classifier among networks, or lacks the method.
        ModelNotReadyError: It has no version yet, or is out of service.
        AuditRefusedError: It has fewer rows than a pair wants.
        AuditRunningError: One of this model and method is not finished.
    """

    def effect(tx: Transaction) -> str:
        model = find_model(tx.session, wanted.model)
        method = _auditable(model, wanted.method)
        if model.state != "ready":
            raise ModelNotReadyError("the model is not in service: audit it once it is ready")
        query = select(func.count()).where(Record.model_id == model.id)
        stored = tx.session.exec(query).one()
        if wanted.rows + wanted.targets > stored:
            raise AuditRefusedError(
                f"the model has {stored} records: ask for fewer rows a pair"
            )
        running = select(Audit.id).where(
            Audit.model_id == model.id, Audit.method == method, Audit.state == "running"
        )
        if tx.session.exec(running).first() is not None:
            raise AuditRunningError("an audit of this method runs: wait for it, or stop it")
        config = {
            "model": model.ref,
            "method": method,
            "pairs": str(wanted.pairs),
            "rows": str(wanted.rows),
            "targets": str(wanted.targets),
            "target": wanted.target,
            "seed": str(new_seed() if wanted.seed is None else wanted.seed),
            "confidence": wanted.confidence,
            "delta": wanted.delta,
        }
        return begin(tx, model, config, wanted.parallel, wanted.every_days).id

    audit_id = services.ledger.transact(effect)
    nudge(services, audit_id, min(wanted.parallel, wanted.pairs))
    return views.get(services, audit_id)


def begin(
    tx: Transaction, model: Model, config: dict[str, str], parallel: int, every_days: int
) -> Audit:
    """Store an audit with its pairs and log its start, before any of them runs."""
    assert model.id is not None
    now = tx.now.replace(microsecond=0)  # as reports spell it
    audit = Audit(
        id=str(uuid.uuid4()),
        model_id=model.id,
        method=config["method"],
        config=config,
        parallel=parallel,
        every_days=every_days,
        due_at=now + timedelta(days=every_days) if every_days else None,
        created_at=now,
        nudged_at=tx.now,
    )
    tx.session.add(audit)
    tx.session.flush()
    for number in range(int(config["pairs"])):
        tx.session.add(AuditPair(audit_id=audit.id, pair=number))
    started = {
        "audit": audit_digest(audit.id, now),
        "config": digest_of(config),
        "method": method_digest(audit.method),
    }
    record_model_event(tx, model.ref, STARTED, started)
    return audit


def stop(services: Services, audit_id: str) -> AuditView:
    """End an audit that runs, and have none follow it. Raises NotFoundError."""

    def effect(tx: Transaction) -> None:
        audit = find(tx.session, audit_id)
        model = tx.session.get_one(Model, audit.model_id)
        audit.every_days, audit.due_at = 0, None
        if audit.state == RUNNING:
            audit.state = "stopped"
            record_end(services, tx, audit, model, STOPPED)
        tx.session.flush()

    services.ledger.transact(effect)
    return views.get(services, audit_id)


def record_end(
    services: Services, tx: Transaction, audit: Audit, model: Model, event: str, **further: str
) -> bool:
    """Log the end of an audit that runs by the log; False where it does not, and log nothing.

    A row can be changed to run again, or to be another audit's. further: more digests.
    """
    one = views.logged(services, audit, model.ref)
    if one is None or one.state != RUNNING:
        return False
    digests = {"audit": one.digest, "config": one.config, **further}
    record_model_event(tx, model.ref, event, digests)
    return True


def nudge(services: Services, audit_id: str, times: int) -> None:
    """Nudge workers to run up to `times` pairs."""
    for _ in range(times):
        services.dispatcher.nudge(audit_id, TASK)


def statistics(services: Services, audit_id: str) -> bytes:
    """Return the numbers of a reported audit's pairs.

    Raises NumbersDestroyedError once one of its targets may have been erased,
    NumbersChangedError where they are not those that were signed; else as `report`.
    """
    file = views.report(services, audit_id)
    with services.reading() as session:
        pairs = pairs_of(session, audit_id)
    if any(pair.before is None for pair in pairs):
        raise NumbersDestroyedError(
            "the numbers were destroyed, since one of their records was erased; "
            "the report stays, and its counts and bounds are still checked without "
            "them"
        )
    numbers = encode_statistics(pairs)
    if hashlib.sha256(numbers).hexdigest() != read_report(file).subject[0].digest:
        raise NumbersChangedError(
            "the stored numbers are not those of the signed report: the database was changed "
            "since; restore a backup of it from before"
        )
    return numbers


def encode_statistics(pairs: list[AuditPair]) -> bytes:
    """Return the log-odds (before, after, retrained) of pairs in order, RFC 8785."""
    numbers = [[pair.before, pair.after, pair.retrained] for pair in pairs]
    return canonical.encode({"kind": "audit-statistics", "pairs": numbers})


def pairs_of(session: Session, audit_id: str) -> list[AuditPair]:
    """Return an audit's pairs in order."""
    query = select(AuditPair).where(AuditPair.audit_id == audit_id)
    return list(session.exec(query.order_by(col(AuditPair.pair))))


def find(session: Session, audit_id: str) -> Audit:
    """Return an audit's row. Raises NotFoundError."""
    audit = session.get(Audit, audit_id)
    if audit is None:
        raise NotFoundError("no audit has this id: GET /v1/audits lists them")
    return audit


def new_seed() -> int:
    """Return a seed that nobody chose."""
    return secrets.randbits(SEED_BITS)


def _auditable(model: Model, method: str | None) -> str:
    if TESTED.isdisjoint(offered(model.config)):
        raise MethodUnavailableError(
            "this model has no approximate method that could be audited: only "
            "networks have some"
        )
    if model.config["network"]["id"] == PIXELS:
        raise MethodUnavailableError(
            "this network learns masks: only networks that classify whole rows can be audited"
        )
    return method or model.method
