"""Which audit of its algorithm a certificate may cite."""

from sqlmodel import Session, col, select

from models import Audit, Model
from workers.provenance import code_digest
from workers.tasks.audit_report import ROOMS


def citation(session: Session, model: Model, method: str, version: str) -> dict[str, str]:
    """Return the parameters that name the newest report of a model's method, if there is one.

    Of the same version and code as the certificate's: what was measured of other code says
    nothing of this. A report of a leak is cited like any other.
    """
    query = (
        select(Audit)
        .where(
            Audit.model_id == model.id,
            Audit.method == method,
            Audit.method_version == version,
            Audit.code_digest == code_digest(*ROOMS),
            Audit.state == "reported",
        )
        .order_by(col(Audit.reported_at).desc(), col(Audit.id))
        .limit(1)
    )
    audit = session.exec(query).first()
    if audit is None:
        return {}
    assert audit.report_digest is not None
    assert audit.reported_at is not None
    assert audit.found is not None
    return {
        "audit": audit.report_digest,
        "audit.day": audit.reported_at.date().isoformat(),
        "audit.found": audit.found,
    }
