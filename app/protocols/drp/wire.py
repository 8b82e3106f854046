"""An agent's request, and the Exercise Status as the answer (sections 2.01, 3.02 to 3.04).

It is `agent-request-id` in requests and `agent_request_id` in answers.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictBool, StringConstraints

from app.protocols.cases import is_left_at_source, outcomes
from app.schemas.base import Wire, format_time
from app.schemas.people import CaseView, PersonIdentity
from lethe.catalogue import REFUSALS
from lethe.identity import IdentityError, digests, is_one_mailbox

PROTOCOL = "DRP"
DELETION = "deletion"
FINAL = ("fulfilled", "revoked", "denied")
AT_SOURCE = "rows that no model learned are held out at their source, which has to delete them"
TICKET = "Data Rights Protocol"
# DRP's reason for a refusal, by the refusal's text in the log. Any other is `other`.
_DENIALS = {
    REFUSALS["ccpa"]["not-verified"]: "insuf_verification",
    REFUSALS["ccpa"]["unfounded"]: "too_many_requests",
} | {
    text: "claim_not_covered"
    for code, text in REFUSALS["ccpa"].items()
    if code not in ("not-verified", "unfounded")
}
Document = dict[str, Any]


class Exercise(Wire):
    """A signed Data Rights Exercise request; other claims about the person are ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=False)

    version: Literal["0.9.3", "0.9.4", "1.0"] = Field(alias="drp.version")
    exercise: Literal[
        "sale:opt-out", "sale:opt_out", "sale:opt-in", "sale:opt_in", "deletion", "access",
        "access:categories", "access:specific",
    ]  # fmt: skip
    regime: Annotated[str, StringConstraints(max_length=64)] | None = None
    agent_request_id: (
        Annotated[
            str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")
        ]
        | None
    ) = Field(default=None, alias="agent-request-id")
    status_callback: Annotated[str, StringConstraints(min_length=1, max_length=2000)] | None = (
        None
    )
    email: str | None = None
    email_verified: StrictBool = False
    phone_number: str | None = None
    phone_number_verified: StrictBool = False


def denial(wanted: Exercise, people: Sequence[PersonIdentity]) -> tuple[str, str] | None:
    """Return why a request is denied without searching the models: DRP's reason, and ours."""
    if wanted.exercise != DELETION:
        return "claim_not_covered", "only deletion can be exercised here"
    if wanted.regime not in (None, "ccpa"):
        return "outside_jurisdiction", "requests are taken under the CCPA, or voluntarily"
    if not people:
        return "insuf_verification", "no e-mail address or phone number is verified"
    return None


def people_of(wanted: Exercise) -> list[PersonIdentity]:
    """Return the identities that the agent has verified; others are ignored.

    Values are hashed here, and not kept. An invalid value counts as missing, as does an address
    that is normalised to another mailbox's: the agent has not verified that one.
    """
    claims = (
        ("email", wanted.email, wanted.email_verified),
        ("phone", wanted.phone_number, wanted.phone_number_verified),
    )
    found = []
    for kind, value, verified in claims:
        if value is None or not verified:
            continue
        try:
            named = {name: one.hex() for name, one in digests(kind, value).items()}
            if not is_one_mailbox(kind, value):
                continue
        except IdentityError:
            continue
        found.append(PersonIdentity.model_validate({"kind": kind, **named}))
    return found


def ticket_of(wanted: Exercise) -> str:
    """Return the ticket of a request's cases, from which `status_of` reads the agent's id."""
    return TICKET if wanted.agent_request_id is None else f"{TICKET}: {wanted.agent_request_id}"


def denied(request: str, wanted: Exercise, at: str, why: tuple[str, str]) -> Document:
    """Return the status of a request that is denied at once."""
    reason, words = why
    return _document(
        request, at, wanted.agent_request_id, ("denied", reason), {"processing_details": words}
    )


def status_of(request: str, views: Sequence[CaseView], ticket: str | None) -> Document:
    """Return the Exercise Status of a request's cases."""
    state = _state(views)
    more = {}
    if state[0] == "in_progress":
        more["expected_by"] = format_time(max(view.due_at for view in views))
    if any(_is_extended(view) for view in views):
        more["processing_details"] = "the deadline was extended, as the law allows"
    if state[0] == "denied" and is_left_at_source(views):
        more["processing_details"] = AT_SOURCE
    named = (ticket or "").removeprefix(TICKET).removeprefix(": ") or None
    received = format_time(min(view.received_at for view in views))
    return _document(request, received, named, state, more)


def _is_extended(view: CaseView) -> bool:
    """Return whether a case's own deadline was extended: its timeline has followed ones too."""
    until = format_time(view.due_at)
    return any(
        item.event == "request.extended" and item.detail.get("due_at") == until
        for item in view.timeline
    )


def _state(views: Sequence[CaseView]) -> tuple[str, str | None]:
    found = outcomes(views)
    if found & {"in progress", "failed"}:  # an operator still has to decide on failed requests
        return "in_progress", None
    if "withdrawn" in found:
        return "revoked", None
    if "refused" in found:
        said = [
            item.detail.get("reason", "")
            for view in views
            for item in view.timeline
            if item.event == "request.refused"
        ]
        return "denied", _DENIALS.get(said[-1] if said else "", "other")
    if is_left_at_source(views):
        return "denied", "claim_not_covered"
    return ("denied", "no_match") if found == {"nothing found"} else ("fulfilled", None)


def _document(
    request: str,
    received: str,
    named: str | None,
    state: tuple[str, str | None],
    more: Document,
) -> Document:
    status, reason = state
    said = {
        "request_id": request,
        "received_at": received,
        "status": status,
        "reason": reason,
        "agent_request_id": named,
        **more,
    }
    return {name: value for name, value in said.items() if value is not None}
