"""The end of an audit: its pairs judged, the report signed, stored and logged by its digest."""

import hashlib
from collections.abc import Sequence
from datetime import datetime

from app.keys.issuer import require_unchanged, signing_issuer
from app.ledger import journal
from app.ledger.transaction import Transaction
from app.method_audits.audits import encode_statistics, pairs_of, record_end
from app.reconcile.audit_rows import REPORT
from app.service.context import Services
from lethe import canonical
from lethe.certificates.audits.counts import REPORTED
from lethe.certificates.audits.report import (
    AuditedMethod,
    AuditPredicate,
    BoundPart,
    build_report,
    words,
)
from lethe.certificates.bundle import sign_envelope
from lethe.certificates.statement import VerifierPart
from models import Audit, AuditPair, Model
from models.database.types import clock
from workers.judge import algorithm_audit
from workers.judge.algorithm_audit import Bound, Finding
from workers.judge.inference.intervals import spell
from workers.method_audits import queue as audit_queue
from workers.method_audits.trust import contradiction
from workers.provenance import code_digest

JUDGES = ("method_audits", "judge")


def issue_if_complete(services: Services, audit_id: str) -> bool:
    """Report an audit once all its pairs are computed; return whether this call did it.

    An audit whose rows were tampered with fails instead.
    """
    with services.reading() as session:
        audit = session.get(Audit, audit_id)
        if audit is None or audit.state != "running":
            return False
        pairs, now = pairs_of(session, audit_id), clock(session)
        model = session.get_one(Model, audit.model_id)
    if any(pair.done_at is None for pair in pairs):
        return False
    why = contradiction(services, audit, model, pairs)
    if why is not None:
        audit_queue.fail(services, audit_id, why)
        return False
    found = finding_of(audit, pairs)
    payload = report(audit, model, pairs, found, now)
    key, keyid, keys = signing_issuer(services.settings, services.ledger)
    file = canonical.encode(sign_envelope(payload, key, keyid))
    digest = hashlib.sha256(file).hexdigest()

    def effect(tx: Transaction) -> bool:
        row = tx.session.get_one(Audit, audit_id)
        if row.state != "running":
            return False  # another worker was faster, or it was stopped
        judged = [pair.mac for pair in pairs]
        if [pair.mac for pair in pairs_of(tx.session, audit_id)] != judged:
            return False  # destroyed with an erased record meanwhile: they are computed again
        require_unchanged(tx, keys.size)  # a revoked key must not have signed
        said = {"report": digest, "code": audit.code_digest or ""}
        if not record_end(services, tx, audit, model, REPORTED, **said):
            return False  # its row was reset to run again
        services.artifacts.put(tx.session, REPORT, file)
        row.state = "reported"
        tx.session.flush()
        return True

    return services.ledger.transact(effect)


def finding_of(audit: Audit, pairs: Sequence[AuditPair]) -> Finding:
    """Return the finding on the pairs, in their order."""
    before, after, retrained = (
        [float.fromhex(str(getattr(pair, name))) for pair in pairs]
        for name in ("before", "after", "retrained")
    )
    levels = float(audit.config["confidence"]), float(audit.config["delta"])
    return algorithm_audit.judge(before, after, retrained, *levels)


def report(
    audit: Audit,
    model: Model,
    pairs: Sequence[AuditPair],
    found: Finding,
    now: datetime,
) -> bytes:
    """Return the payload of a report, a function of its arguments."""
    assert audit.code_digest is not None
    assert audit.method_version is not None
    versions = [pair.version or 0 for pair in pairs]
    environments = {canonical.encode(pair.environment): pair.environment for pair in pairs}
    predicate = AuditPredicate(
        audit_id=audit.id,
        model=model.ref,
        registration=journal.digest_of(journal.pinned_of(model)),
        configuration=audit.config,
        method=AuditedMethod(audit.method, audit.method_version, audit.code_digest),
        auditor=VerifierPart(algorithm_audit.ID, algorithm_audit.VERSION, code_digest(*JUDGES)),
        started_at=audit.created_at,
        reported_at=now,
        versions=(min(versions), max(versions)),
        environments=tuple(environments[name] or {} for name in sorted(environments)),
        pairs=len(pairs),
        gave_way=sum(bool(pair.gave_way) for pair in pairs),
        after=_part(found.after),
        before=_part(found.before),
        resolution=spell(found.resolution),
        result=found.result,
        statement=words(
            found.result,
            spell(found.after.epsilon),
            spell(found.before.epsilon),
            spell(found.resolution),
        ),
    )
    statistics = encode_statistics(list(pairs))
    return build_report(hashlib.sha256(statistics).hexdigest(), predicate)


def _part(bound: Bound) -> BoundPart:
    return BoundPart(
        bound.false_positives,
        bound.false_negatives,
        bound.trials,
        spell(bound.fpr_upper),
        spell(bound.fnr_upper),
        spell(bound.epsilon),
    )
