"""A small network with a ladder in its policy, and helpers to inspect an escalation."""

from typing import Any

from sqlmodel import Session, col, select

from models import Artifact, RequestEvent
from tests import small_network
from tests.installation import Installation
from tests.workers.jobs.families.network import networks
from workers.judge.policy.document import to_document
from workers.judge.policy.policy import default

STRONGER = {"method": "puf-special", "settings": {"guard": {"rise": 2}}}
HF_KCU = {"method": "hf-kcu", "settings": {}}
ROWS = small_network.rows()
GONE = set(ROWS["records"][ROWS["clients"] == "c1"].tolist())


def policy(*ladder: dict[str, Any], budget: str = "100") -> dict[str, Any]:
    return {**to_document(default(30)), "ladder": list(ladder), "budget": budget}


def escalations(made: Installation, request_id: str) -> list[dict[str, Any]]:
    """Return the payload of each event of an escalation, in order."""
    with Session(made.services.engine) as session:
        query = select(RequestEvent).where(
            RequestEvent.request_id == request_id, RequestEvent.event == "request.escalated"
        )
        return [e.payload for e in session.exec(query.order_by(col(RequestEvent.log_index)))]


def parameters(made: Installation, request_id: str) -> dict[str, str]:
    return dict(networks.statement(made, request_id).predicate.method.parameters)


def view(made: Installation, request_id: str) -> dict[str, Any]:
    found: dict[str, Any] = made.caller.http.get(f"/v1/requests/{request_id}").json()
    return found


def nothing_is_left(made: Installation) -> bool:
    """Return whether only data needed by a certificate are still readable."""
    return readable(made) == {"evidence", "head", "scores", "state"}


def readable(made: Installation) -> set[str]:
    with Session(made.services.engine) as session:
        kept = session.exec(select(Artifact)).all()
    return {artifact.kind for artifact in kept if artifact.wrapped_key is not None}
