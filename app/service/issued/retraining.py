"""The last retraining of a model with a certified duration."""

from dataclasses import dataclass

from sqlmodel import col, select

from app.service.context import Services
from app.service.issued import certificates
from app.service.requests import id_of
from app.witnesses.rows import Rows
from lethe.canonical import parse_base64
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.cost import Cost, cost_of
from lethe.certificates.statement import parse_statement
from lethe.errors import LetheError
from models import Certificate, ErasureRequest, Model

LOOKED_AT = 20  # newest certificates that are searched


@dataclass(frozen=True, slots=True)
class Retraining:
    """ref: of the request whose certificate states it. by: who retrained, as in `Cost`."""

    ref: str
    seconds: float
    by: str


def last_retraining(services: Services, model: str) -> Retraining | None:
    """Return the newest in a model's last certificates, None if none states one.

    Rows only select the certificates; the figure is read from one that verifies.
    """
    with services.reading() as session:
        below = Rows(services.ledger).issued_below(session)
        query = (
            select(ErasureRequest.ref, Certificate.envelope)
            .join(Certificate, col(Certificate.request_id) == col(ErasureRequest.id))
            .join(Model, col(Model.id) == col(ErasureRequest.model_id))
            .where(Model.ref == model, Certificate.log_index < below)
            .order_by(col(Certificate.log_index).desc())
            .limit(LOOKED_AT)
        )
        rows = list(session.exec(query))
    for ref, envelope in rows:
        try:
            if _cost(parse_base64(envelope["payload"])).retraining is None:
                continue
            file = certificates.bundle(services, id_of(services, ref))
        except (LetheError, KeyError, TypeError, ValueError):
            continue  # a row that was changed: the certificate's page reports it
        if certificates.verify(services, file, None, None).result == "PASS":
            cost = _cost(parse_bundle(file).payload)
            if cost.retraining is not None and cost.by is not None:
                return Retraining(ref, cost.retraining, cost.by)
    return None


def _cost(payload: bytes) -> Cost:
    return cost_of(parse_statement(payload).predicate)
