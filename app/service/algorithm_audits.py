"""Audits of unlearning algorithms: start, list, stop, download what they found."""

import base64
import hashlib
import secrets
import uuid

from sqlmodel import Session, col, func, select

from app import canonical
from app.certificates.audit_report import parse_report
from app.ledger.audit_counts import STARTED, method_digest
from app.ledger.journal import record_model_event
from app.ledger.sequencer import Transaction
from app.schemas.audits import AuditView, NewAudit
from app.schemas.base import Page
from app.schemas.networks import UNREADY
from app.service.audit_problems import (
    AuditRefusedError,
    AuditRunningError,
    NoReportError,
    NumbersChangedError,
    NumbersGoneError,
)
from app.service.context import Services
from app.service.methods import PIXELS, is_network, offered
from app.service.problems import MethodUnavailableError, ModelNotReadyError, NotFoundError
from app.service.registry import find as find_model
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

    def effect(tx: Transaction) -> AuditView:
        model = find_model(tx.session, wanted.model)
        method = _auditable(model, wanted.method)
        if model.state != "ready":
            raise ModelNotReadyError("the model is not in service: audit it once it is ready")
        stored = _count_records(tx.session, model)
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
        audit = begin(tx, model, config, wanted.parallel, wanted.every_days)
        return show(tx.session, audit, model.ref)

    shown = services.ledger.transact(effect)
    nudge(services, shown.id, min(wanted.parallel, wanted.pairs))
    return shown


def begin(
    tx: Transaction, model: Model, config: dict[str, str], parallel: int, every_days: int
) -> Audit:
    """Store an audit with its pairs and log its start, before any of them runs."""
    digest = digest_of(config)
    assert model.id is not None
    audit = Audit(
        id=str(uuid.uuid4()),
        model_id=model.id,
        method=config["method"],
        config=config,
        config_digest=digest,
        parallel=parallel,
        every_days=every_days,
        created_at=tx.now,
        nudged_at=tx.now,
    )
    tx.session.add(audit)
    tx.session.flush()
    for number in range(int(config["pairs"])):
        tx.session.add(AuditPair(audit_id=audit.id, pair=number))
    started = {"config": digest, "method": method_digest(audit.method)}
    record_model_event(tx, model.ref, STARTED, started)
    return audit


def stop(services: Services, audit_id: str) -> AuditView:
    """End an audit that runs, and have none follow it. Raises NotFoundError."""

    def effect(tx: Transaction) -> AuditView:
        audit = find(tx.session, audit_id)
        model = tx.session.get_one(Model, audit.model_id)
        audit.every_days = 0
        if audit.state == "running":
            audit.state = "stopped"
            record_model_event(tx, model.ref, "audit.stopped", {"config": audit.config_digest})
        tx.session.flush()
        return show(tx.session, audit, model.ref)

    return services.ledger.transact(effect)


def nudge(services: Services, audit_id: str, times: int) -> None:
    """Have so many workers take a pair each."""
    for _ in range(times):
        services.dispatcher.nudge(audit_id, TASK)


def page(session: Session, after: str | None, limit: int) -> Page[AuditView]:
    """Return audits by id."""
    query = (
        select(Audit, Model.ref)
        .join(Model, col(Model.id) == col(Audit.model_id))
        .order_by(col(Audit.id))
        .limit(limit + 1)
    )
    if after is not None:
        query = query.where(col(Audit.id) > after)
    rows = list(session.exec(query))
    more = rows[limit - 1][0].id if len(rows) > limit else None
    return Page(items=[show(session, audit, ref) for audit, ref in rows[:limit]], next=more)


def get(session: Session, audit_id: str) -> AuditView:
    """Return one audit. Raises NotFoundError."""
    audit = find(session, audit_id)
    return show(session, audit, session.get_one(Model, audit.model_id).ref)


def report(services: Services, audit_id: str) -> bytes:
    """Return an audit's signed report. Raises NotFoundError, NoReportError."""
    with services.reading() as session:
        return services.artifacts.get(session, _reported(session, audit_id))


def statistics(services: Services, audit_id: str) -> bytes:
    """Return the numbers of a reported audit's pairs.

    Raises NumbersGoneError once one of its targets may have been erased, NumbersChangedError
    where they are not those that were signed; else as `report`.
    """
    with services.reading() as session:
        file = services.artifacts.get(session, _reported(session, audit_id))
        pairs = pairs_of(session, audit_id)
    if any(pair.before is None for pair in pairs):
        raise NumbersGoneError(
            "they were of a record that has been erased since; the report stays, and its "
            "counts and bounds are still checked without them"
        )
    numbers = encode_statistics(pairs)
    if hashlib.sha256(numbers).hexdigest() != _signed_numbers(file):
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


def show(session: Session, audit: Audit, ref: str) -> AuditView:
    """Return an audit as the API shows it."""
    done = select(func.count()).where(
        AuditPair.audit_id == audit.id, col(AuditPair.done_at).is_not(None)
    )
    return AuditView.model_validate(
        {
            **{name: getattr(audit, name) for name in _SHOWN},
            "model": ref,
            "pairs_done": session.exec(done).one(),
            "started_at": audit.created_at,
        }
    )


_SHOWN = (
    "id",
    "method",
    "state",
    "failure",
    "config",
    "config_digest",
    "every_days",
    "result",
    "found",
    "report_digest",
    "reported_at",
)


def digest_of(config: dict[str, str]) -> str:
    """Return the digest by which the log holds an audit to its configuration."""
    return hashlib.sha256(canonical.encode(config)).hexdigest()


def new_seed() -> int:
    """Return a seed that nobody chose."""
    return secrets.randbits(SEED_BITS)


def _reported(session: Session, audit_id: str) -> str:
    audit = find(session, audit_id)
    if audit.report_id is None:
        raise NoReportError("the audit has no report yet", state=audit.state)
    return audit.report_id


def _signed_numbers(report: bytes) -> str:
    """Return the digest of the numbers that a report was signed of, hex SHA-256."""
    payload = base64.b64decode(canonical.decode(report)["payload"])
    return parse_report(payload).subject[0].digest


def _auditable(model: Model, method: str | None) -> str:
    chosen = method or model.method
    if not is_network(model.config):
        raise MethodUnavailableError("ridge heads are exact: there is nothing to audit")
    if model.config["network"]["id"] == PIXELS:
        raise MethodUnavailableError("only classifiers can be audited, and this one has masks")
    if chosen in UNREADY or chosen not in offered(model.config):
        raise MethodUnavailableError("this method lacks here what it needs: name another")
    return chosen


def _count_records(session: Session, model: Model) -> int:
    return session.exec(select(func.count()).where(Record.model_id == model.id)).one()
