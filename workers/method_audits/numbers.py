"""The numbers of an audit's pairs are destroyed with the records that they describe.

Three log-odds of one record in each of many models are that record's data, as scores are. The
report is kept: it has counts, a bound, and a digest of the numbers, and describes the method. A
running audit recomputes its pairs, with the remaining targets.
"""

from collections.abc import Collection, Mapping

from sqlalchemy import update
from sqlmodel import Session, col, select

from lethe.held_out import is_held_out
from models import Audit, AuditPair, Model, Record
from workers.audit_pairs.ranks import were_targets

_NOTHING = {"before": None, "after": None, "retrained": None, "mac": None}
AGAIN = {
    **_NOTHING,
    **{"gave_way": None, "version": None, "environment": None},
    **{"done_at": None, "lease_until": None, "tries": 0},
}


def of_records(session: Session, model: Model, leaving: Collection[str]) -> dict[str, bool]:
    """Return for each audit whether its targets may have been among these stored records."""
    audits = session.exec(select(Audit).where(Audit.model_id == model.id)).all()
    if not audits:
        return {}
    held_out = model.config["training"]["seed"], model.config["held_out"]
    stored = select(Record.record).where(Record.model_id == model.id)
    trained = [
        r
        for r in session.exec(stored.order_by(col(Record.id)))
        if not is_held_out(*held_out, r)
    ]
    return {
        audit.id: bool(
            were_targets(
                int(audit.config["seed"]), int(audit.config["targets"]), trained, leaving
            )
        )
        for audit in audits
    }


def destroy(session: Session, model_id: int, found: Mapping[str, bool]) -> None:
    """Destroy the numbers of a model's audits, except those that `found` has as of no record.

    An audit that it lacks was started since, and may have tested the records. A pair computed
    now cannot be recorded.
    """
    session.flush()  # unflushed changes would be lost on expiry
    audits = session.exec(select(Audit).where(Audit.model_id == model_id)).all()
    if not (concerned := [one for one in audits if found.get(one.id, True)]):
        return
    for audit in concerned:
        values = AGAIN if audit.state == "running" else _NOTHING
        token = col(AuditPair.lease_token) + 1
        session.connection().execute(
            update(AuditPair)
            .where(col(AuditPair.audit_id) == audit.id)
            .values(lease_token=token, **values)
        )
    session.expire_all()
