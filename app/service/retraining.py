"""The last retraining of a model that a certificate states the seconds of."""

from dataclasses import dataclass

from sqlmodel import col, select

from app.service import certificates
from app.service.context import Services
from app.service.requests import id_of
from app.witnesses.rows import Rows
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.cost import cost_of
from lethe.certificates.statement import parse_statement
from models import Certificate, ErasureRequest, Model

LOOKED_AT = 20  # certificates: each is verified, in some milliseconds


@dataclass(frozen=True, slots=True)
class Retraining:
    """ref: of the request whose certificate states it. by: whose retraining, as `Cost`."""

    ref: str
    seconds: float
    by: str


def last_retraining(services: Services, model: str) -> Retraining | None:
    """Return the newest one among the model's last certificates that verify, None of none."""
    with services.reading() as session:
        below = Rows(services.ledger).issued_below(session)
        query = (
            select(ErasureRequest.ref)
            .join(Certificate, col(Certificate.request_id) == col(ErasureRequest.id))
            .join(Model, col(Model.id) == col(ErasureRequest.model_id))
            .where(Model.ref == model, Certificate.log_index < below)
            .order_by(col(Certificate.log_index).desc())
            .limit(LOOKED_AT)
        )
        refs = list(session.exec(query))
    for ref in refs:
        file = certificates.bundle(services, id_of(services, ref))
        if certificates.verify(services, file, None, None).result != "PASS":
            continue
        cost = cost_of(parse_statement(parse_bundle(file).payload).predicate)
        if cost.retraining is not None and cost.by is not None:
            return Retraining(ref, cost.retraining, cost.by)
    return None
