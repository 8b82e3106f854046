"""A case: its parts, its timeline, and the decisions of officers, each confirmed before."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from pydantic import ValidationError

from app.api.http.deps import ServicesDep
from app.console.forms import Posted
from app.console.render import redirect, render
from app.console.route import router
from app.console.session import Deciding, SignedIn, Visitor
from app.problems import BadFieldError, NotFoundError
from app.schemas.people import Assignment, CaseNote, CaseView, ReasonedDecision
from app.service.context import Services
from app.service.desk import answer, cases, decisions
from app.service.review import AWAITING_REVIEW, COOLING_OFF, HELD, PAUSED
from lethe.catalogue import COMPLAINT, EXTENSIONS, PAUSES, REFUSALS

routes = router()
DOWNLOAD = "attachment; filename="
Reasons = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Action:
    """A decision.

    reasons: its codes by regulation. states: of requests that it applies to, None for any that
    is open. final: it cannot be undone.
    """

    do: Callable[[Services, str, Visitor, Mapping[str, str]], object]
    states: tuple[str, ...] | None
    final: bool = False
    reasons: Reasons | None = None

    def fits(self, case: CaseView) -> bool:
        """Whether a part of the case is in one of its states."""
        if self.reasons is not None and not self.reasons[case.regulation]:
            return False
        return any(
            part.outcome == "in progress" and (self.states is None or part.state in self.states)
            for part in case.parts
        )


def _reason(form: Mapping[str, str]) -> str:
    return str(valid(ReasonedDecision, reason=form.get("reason", "")).reason)


def valid(wire: type[Any], **fields: Any) -> Any:
    """Return a body as the API takes it. Raises BadFieldError with what is wrong."""
    try:
        return wire.model_validate(fields)
    except ValidationError as error:
        (name, *_) = fields
        why = error.errors(include_input=False, include_url=False, include_context=False)
        raise BadFieldError(f"{name}: {why[0]['msg']}") from None


ACTIONS: dict[str, Action] = {
    "approve": Action(
        lambda s, ref, by, _: decisions.approve(s, ref, by.name), (AWAITING_REVIEW,), final=True
    ),
    "refuse": Action(
        lambda s, ref, by, form: decisions.refuse(s, ref, by.name, _reason(form)),
        HELD,
        final=True,
        reasons=REFUSALS,
    ),
    "extend": Action(
        lambda s, ref, by, form: decisions.extend(s, ref, by.name, _reason(form)),
        None,
        final=True,
        reasons=EXTENSIONS,
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
}
CONFIRMED = ("approve", "refuse", "extend", "pause", "close", "contact")


@routes.get("/cases/{ref}", operation_id="consoleCase")
def page(ref: str, request: Request, services: ServicesDep, visitor: SignedIn) -> Response:
    """Show a case: its parts, deadline and timeline."""
    case = cases.show(services, ref)
    fitting = [name for name, action in ACTIONS.items() if action.fits(case)]
    return render(
        request,
        "case.html",
        case=case,
        fitting=fitting,
        officers=sorted({*decisions.assignable(services), visitor.name}),
        is_case=case.ref not in {part.request_ref for part in case.parts},
    )


@routes.get("/cases/{ref}/answer", operation_id="consoleCaseAnswer")
def get_answer(ref: str, services: ServicesDep, visitor: Deciding) -> Response:
    """Download the signed answer to a case."""
    headers = {"content-disposition": f'{DOWNLOAD}"answer.dsse.json"'}
    return Response(
        answer.summary(services, ref), media_type="application/json", headers=headers
    )


@routes.get("/cases/{ref}/{name}", operation_id="consoleCaseConfirm")
def confirm(
    ref: str, name: str, request: Request, services: ServicesDep, visitor: Deciding
) -> Response:
    """Ask before a decision is taken, and for its reason."""
    if name not in CONFIRMED:
        raise NotFoundError("the console has no such page")
    case = cases.show(services, ref)
    action = ACTIONS.get(name)
    reasons = action.reasons[case.regulation] if action and action.reasons else {}
    return render(
        request,
        "confirm.html",
        case=case,
        name=name,
        reasons=reasons,
        is_final=name == "close" or (action is not None and action.final),
        complaint=COMPLAINT[case.regulation] if name in ("refuse", "extend") else None,
    )


@routes.post("/cases/{ref}/contact", operation_id="consoleCaseContact")
def contact(
    ref: str, request: Request, services: ServicesDep, visitor: Deciding, _: Posted
) -> Response:
    """Show the contact address of a case, once; the log has who opened it."""
    opened = cases.open_contact(services, ref, visitor.name)
    return render(request, "contact.html", ref=ref, opened=opened)


@routes.post("/cases/{ref}/close", operation_id="consoleCaseClose")
def close(
    ref: str, request: Request, services: ServicesDep, visitor: Deciding, _: Posted
) -> Response:
    """Close an answered case; its contact address is destroyed."""
    cases.close(services, ref, visitor.name)
    return redirect(request, f"/console/cases/{ref}")


@routes.post("/cases/{ref}/{name}", operation_id="consoleCaseDecide")
def decide(
    ref: str,
    name: str,
    request: Request,
    services: ServicesDep,
    visitor: Deciding,
    form: Posted,
) -> Response:
    """Take a decision, which the log names the visitor for."""
    action = ACTIONS.get(name)
    if action is None:
        raise NotFoundError("the console has no such decision")
    action.do(services, ref, visitor, form)
    return redirect(request, f"/console/cases/{ref}")
