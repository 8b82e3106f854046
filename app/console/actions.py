"""The decisions that a case's page offers: their effects, conditions and roles.

Each calls the same service function as the API, which enforces the rules: `fits` only hides
buttons that would lead to a refusal.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from app.console.session import Visitor
from app.problems import BadFieldError, ForbiddenError
from app.schemas.people import Assignment, CaseNote, CaseView, ReasonedDecision
from app.schemas.requests import Decision
from app.service import decisions as waiting
from app.service.access.roles import DECIDING, OPERATOR
from app.service.context import Services
from app.service.desk import decisions
from app.service.requests import id_of
from app.service.review import AWAITING_REVIEW, COOLING_OFF, EXTENDED, HELD, PAUSED
from lethe.catalogue import EXTENSIONS, PAUSES, REFUSALS

Reasons = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Action:
    """A decision.

    reasons: its codes by regulation. states: of requests that it applies to, None for all open
    ones. final: it cannot be undone. roles: who may take it. single: only on one request, by
    its own reference. own: only on the visitor's submissions. why: it needs a reason in words.
    once: the event that it adds, after which it is refused.
    """

    do: Callable[[Services, str, Visitor, Mapping[str, str]], object]
    states: tuple[str, ...] | None
    final: bool = False
    reasons: Reasons | None = None
    roles: tuple[str, ...] = DECIDING
    single: bool = False
    own: bool = False
    why: bool = False
    once: str | None = None

    def fits(self, case: CaseView, visitor: Visitor) -> bool:
        """Whether a part of the case is in one of its states, and the visitor may take it."""
        if visitor.role not in self.roles or (self.own and case.opened_by != visitor.name):
            return False
        if self.reasons is not None and not self.reasons[case.regulation]:
            return False
        if self.single and case.ref not in {part.request_ref for part in case.parts}:
            return False
        if self.once is not None and self.once in {item.event for item in case.timeline}:
            return False
        return any(
            part.outcome == "in progress" and (self.states is None or part.state in self.states)
            for part in case.parts
        )

    def check_role(self, visitor: Visitor) -> None:
        """Raise ForbiddenError unless the visitor's role may take it."""
        if visitor.role not in self.roles:
            raise ForbiddenError(
                f"only the role {' or '.join(self.roles)} may do this: sign in with "
                "such a token"
            )


def _reason(form: Mapping[str, str]) -> str:
    return str(valid(ReasonedDecision, reason=form.get("reason", "")).reason)


def valid(wire: type[Any], **fields: Any) -> Any:
    """Return a validated body of the API. Raises BadFieldError with the reason."""
    try:
        return wire.model_validate(fields)
    except ValidationError as error:
        (name, *_) = fields
        why = error.errors(include_input=False, include_url=False, include_context=False)
        raise BadFieldError(f"{name}: {why[0]['msg']}") from None


def _decide(decision: str) -> Callable[[Services, str, Visitor, Mapping[str, str]], object]:
    """Return the action that decides on a request whose attempts have all failed."""

    def act(services: Services, ref: str, by: Visitor, form: Mapping[str, str]) -> object:
        wanted = valid(Decision, why=form.get("why", ""), decision=decision)
        return waiting.decide(services, id_of(services, ref), wanted, by.name)

    return act


ACTIONS: dict[str, Action] = {
    "approve": Action(
        lambda s, ref, by, _: decisions.approve(s, ref, by.name), (AWAITING_REVIEW,), final=True
    ),
    "refuse": Action(
        lambda s, ref, by, form: decisions.refuse(s, ref, by.name, _reason(form)),
        decisions.REFUSABLE,
        final=True,
        reasons=REFUSALS,
    ),
    "extend": Action(
        lambda s, ref, by, form: decisions.extend(s, ref, by.name, _reason(form)),
        None,
        final=True,
        reasons=EXTENSIONS,
        once=EXTENDED,
    ),
    "pause": Action(
        lambda s, ref, by, form: decisions.pause(s, ref, by.name, _reason(form)),
        (AWAITING_REVIEW, COOLING_OFF),
        reasons=PAUSES,
    ),
    "resume": Action(lambda s, ref, by, _: decisions.resume(s, ref, by.name), (PAUSED,)),
    "note": Action(
        lambda s, ref, by, form: decisions.note(
            s, ref, by.name, valid(CaseNote, text=form.get("text", "")).text
        ),
        None,
    ),
    "assign": Action(
        lambda s, ref, by, form: decisions.assign(
            s, ref, by.name, valid(Assignment, to=form.get("to", "")).to
        ),
        None,
    ),
    "withdraw": Action(
        lambda s, ref, by, _: decisions.withdraw_all(s, ref, by.name),
        (*HELD, "received", "awaiting-client", waiting.AWAITING),
        final=True,
        own=True,
    ),
    "retry": Action(
        _decide("retry"), (waiting.AWAITING,), roles=(OPERATOR,), single=True, why=True
    ),
    "abandon": Action(
        _decide("abandon"),
        (waiting.AWAITING,),
        final=True,
        roles=(OPERATOR,),
        single=True,
        why=True,
    ),
}
CONFIRMED = (
    "approve", "refuse", "extend", "pause", "withdraw", "retry", "abandon", "close", "contact",
)  # fmt: skip
