"""Before a report is signed: the rows must be what the log says and what workers recorded.

The audit's own row is held to its start in the log, each pair to its MAC. What contradicts
them is not judged, or whoever writes the database could sign with the issuer's key.
"""

import hashlib
from collections.abc import Sequence

import rfc8785
from sqlalchemy import update
from sqlmodel import col

from app.ledger.audit_counts import REPORTED, STARTED, method_digest
from app.ledger.entries import Leaf
from app.ledger.model_events import model_events
from app.service.algorithm_audits import TASK, digest_of
from app.service.audit_macs import RECORDED, about, is_authentic, mac_key
from app.service.context import Services
from models import Audit, AuditPair, Model
from workers.tasks.audit_numbers import AGAIN

ENDS = (REPORTED, "audit.failed", "audit.stopped")
UNLOGGED = "the log has no such audit that runs: its row was changed; start another"
FORGED = "pair {} is not as a worker recorded it: its row was changed; start another audit"
OTHERS = "the audit has other pairs than were started: rows were changed; start another"


def redo_unsealed(services: Services, audit: Audit, pairs: Sequence[AuditPair]) -> bool:
    """Have pairs without a MAC computed again; return whether there were any.

    They are from before pairs had one. Who takes a MAC away gains an honest pair.
    """
    bare = [pair.pair for pair in pairs if pair.mac is None]
    if not bare:
        return False
    with services.engine.begin() as connection:
        connection.execute(
            update(AuditPair)
            .where(
                col(AuditPair.audit_id) == audit.id,
                col(AuditPair.mac).is_(None),
                col(AuditPair.done_at).is_not(None),
            )
            .values(lease_token=col(AuditPair.lease_token) + 1, **AGAIN)
        )
    for _ in range(max(1, min(audit.parallel, len(bare)))):
        services.dispatcher.nudge(audit.id, TASK)
    return True


def contradiction(
    services: Services, audit: Audit, model: Model, pairs: Sequence[AuditPair]
) -> str | None:
    """Return why no report may be signed of these rows, None where one may.

    pairs: in their order. Raises what `model_events` raises.
    """
    if not _is_logged(audit, model, model_events(services.ledger, model.ref)):
        return UNLOGGED
    if [pair.pair for pair in pairs] != list(range(int(audit.config["pairs"]))):
        return OTHERS
    key = mac_key(services.master, model)
    common = about(model, audit.id, audit.config, audit.method_version, audit.code_digest)
    for pair in pairs:
        recorded = {name: getattr(pair, name) for name in RECORDED}
        if not is_authentic(key, common, pair.pair, recorded, pair.mac):
            return FORGED.format(pair.pair)
    return None


def named_in_log(services: Services, audit: Audit, model: Model) -> str:
    """Return the digest by which the log can name an audit whose row cannot be believed."""
    known = [
        leaf.digests.get("config", "")
        for _, leaf in model_events(services.ledger, model.ref)
        if leaf.event == STARTED
    ]
    for digest in (audit.config_digest, _digest(audit)):
        if digest in known:
            return digest
    return known[-1] if known else hashlib.sha256(audit.id.encode()).hexdigest()


def _is_logged(audit: Audit, model: Model, events: Sequence[tuple[int, Leaf]]) -> bool:
    """Return whether the newest start of this configuration is this one's and has no end."""
    config = _digest(audit)
    of_it = [leaf for _, leaf in events if leaf.digests.get("config") == config]
    if not of_it or of_it[-1].event != STARTED:
        return False
    started = of_it[-1]
    own = method_digest(audit.method)
    return (
        config == audit.config_digest
        and started.digests.get("method", own) == own  # once they named none
        and (audit.config["method"], audit.config["model"]) == (audit.method, model.ref)
        and started.day == audit.created_at.date()
    )


def _digest(audit: Audit) -> str:
    try:
        return digest_of(audit.config)
    except rfc8785.CanonicalizationError:
        return ""
