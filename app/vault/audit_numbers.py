"""The numbers of an audit's pairs are destroyed with the records that they describe.

Three log-odds of one record in each of many models are that record's data, as scores are. The
report is kept: it has counts, a bound, and a digest of the numbers, and describes the method. A
running audit recomputes its pairs, with the remaining targets.
"""

from collections.abc import Mapping
from types import MappingProxyType

from sqlalchemy import update
from sqlmodel import Session, col, select

from models import Audit, AuditPair

_NOTHING = {"before": None, "after": None, "retrained": None, "mac": None}
_AGAIN = {
    **_NOTHING,
    **{"gave_way": None, "version": None, "environment": None},
    **{"done_at": None, "lease_until": None, "tries": 0},
}


def destroy_numbers(
    session: Session, model_id: int, found: Mapping[str, bool] = MappingProxyType({})
) -> None:
    """Destroy the numbers of a model's audits, except those that `found` has as of no record.

    An audit that it lacks was started since, and may have tested the records. A pair computed
    now cannot be recorded.
    """
    session.flush()  # unflushed changes would be lost on expiry
    audits = session.exec(select(Audit).where(Audit.model_id == model_id)).all()
    if not (concerned := [one for one in audits if found.get(one.id, True)]):
        return
    for audit in concerned:
        values = _AGAIN if audit.state == "running" else _NOTHING
        token = col(AuditPair.lease_token) + 1
        session.connection().execute(
            update(AuditPair)
            .where(col(AuditPair.audit_id) == audit.id)
            .values(lease_token=token, **values)
        )
    session.expire_all()
