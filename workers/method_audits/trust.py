"""Checks before a report is signed: the rows must match the log and the workers' records.

The audit's own row is compared with its start in the log, each pair with its MAC, the model's
rows with its version. Contradictions are not judged: otherwise a person with write access to
the database could obtain the issuer's signature.
"""

from collections.abc import Sequence

from app.method_audits import views
from app.method_audits.macs import RECORDED, about, is_authentic
from app.reconcile.audit_rows import problem_with
from app.service.context import Services
from app.vault.master import audit_mac_key
from lethe.certificates.audits.counts import RUNNING
from models import Audit, AuditPair, Model
from workers.errors import RefusedError
from workers.families import base as family
from workers.lineage.logged import registered

UNLOGGED = "the log has no such audit that runs: its row was changed; start another"
UNREGISTERED = "the model is not as it was registered: its row was changed; restore it"
FORGED = "pair {} is not as a worker recorded it: its row was changed; start another audit"
OTHERS = "the audit has other pairs than were started: rows were changed; start another"


def contradiction(
    services: Services, audit: Audit, model: Model, pairs: Sequence[AuditPair]
) -> str | None:
    """Return why no report may be signed for these rows, None if one may.

    pairs: in their order. Raises what `model_events` raises, and errors of reading the rows.
    """
    one = views.logged(services, audit, model.ref)
    if one is None or one.state != RUNNING or problem_with(audit, one):
        return UNLOGGED
    if (audit.config.get("method"), audit.config.get("model")) != (audit.method, model.ref):
        return UNLOGGED
    if not registered(services.ledger, model).unchanged:
        return UNREGISTERED
    if [pair.pair for pair in pairs] != list(range(int(audit.config["pairs"]))):
        return OTHERS
    key = audit_mac_key(services.root_secret, model)
    common = about(model, audit.id, audit.config, audit.method_version, audit.code_digest)
    for pair in pairs:
        recorded = {name: getattr(pair, name) for name in RECORDED}
        if not is_authentic(key, common, pair.pair, recorded, pair.mac):
            return FORGED.format(pair.pair)
    try:
        with services.reading() as session:
            now = session.get_one(Model, model.id)
            family.of(now).audited_method(services, session, now, audit.config)
    except RefusedError as error:
        return str(error)
    return None
