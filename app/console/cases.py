"""A case: its parts, its timeline, and the decisions of officers, with confirmation pages."""

from functools import partial

from fastapi import Request, Response

from app.api.http.deps import ServicesDep
from app.api.http.pages import attachment
from app.console.actions import ACTIONS, CONFIRMED, Action
from app.console.forms import Posted
from app.console.render import language_of, redirect, render
from app.console.route import router
from app.console.session import Deciding, SignedIn
from app.problems import NotFoundError
from app.schemas.people import CaseView
from app.service import requests
from app.service.decisions import AWAITING
from app.service.desk import answer, cases, decisions
from lethe.words.reasons import reason_in, reason_of, remedies_in, remedies_of
from lethe.words.texts import Language
from lethe.words.timeline import acts

routes = router()


@routes.get("/cases/{ref}", operation_id="consoleCase")
def page(ref: str, request: Request, services: ServicesDep, visitor: SignedIn) -> Response:
    """Show a case: its parts, deadline and timeline."""
    case = cases.show(services, ref)
    fitting = [name for name, action in ACTIONS.items() if action.fits(case, visitor)]
    return render(
        request,
        "case.html",
        case=case,
        acts=acts(dict(item) for item in case.timeline),
        in_words=partial(_in_words, language_of(request)),
        fitting=fitting,
        officers=sorted({*decisions.assignable(services), visitor.name}),
        waiting={
            part.request_ref: requests.view(services, part.request).reason
            for part in case.parts
            if part.state == AWAITING and part.request is not None
        },
        is_case=case.ref not in {part.request_ref for part in case.parts},
    )


def _in_words(language: Language, regulation: str, name: str, value: str) -> str | None:
    """Return a decision's logged reason or notice in the reader's language, None for others."""
    known = {"reason": reason_in, "notice": remedies_in}
    return known[name](language, regulation, value) if name in known else None


@routes.get("/cases/{ref}/answer", operation_id="consoleCaseAnswer")
def get_answer(ref: str, services: ServicesDep, visitor: Deciding) -> Response:
    """Download the signed answer to a case."""
    data, headers = answer.summary(services, ref), attachment("answer.dsse.json")
    return Response(data, media_type="application/json", headers=headers)


@routes.get("/cases/{ref}/{name}", operation_id="consoleCaseConfirm")
def confirm(
    ref: str, name: str, request: Request, services: ServicesDep, visitor: Deciding
) -> Response:
    """Ask for confirmation of a decision, and for its reason."""
    if name not in CONFIRMED:
        raise NotFoundError("the console has no such page")
    action = ACTIONS.get(name)
    if action is not None:
        action.check_role(visitor)
    case = cases.show(services, ref)
    language, law = language_of(request), case.regulation
    codes = action.reasons[law] if action and action.reasons else {}
    return render(
        request,
        "confirm.html",
        case=case,
        name=name,
        reasons={code: reason_of(language, law, code) for code in codes},
        is_final=name == "close" or (action is not None and action.final),
        asks_why=action is not None and action.why,
        remedies=remedies_of(language, law) if name in ("refuse", "extend") else None,
        underway=_underway(case, action) if name in ("refuse", "withdraw") else [],
    )


def _underway(case: CaseView, action: Action | None) -> list[str]:
    """Return the models of a case on which a decision comes too late, or has no effect."""
    states = () if action is None or action.states is None else action.states
    return [
        part.model
        for part in case.parts
        if part.outcome == "in progress" and part.state not in states
    ]


@routes.post("/cases/{ref}/contact", operation_id="consoleCaseContact")
def contact(
    ref: str, request: Request, services: ServicesDep, visitor: Deciding, _: Posted
) -> Response:
    """Show the contact address of a case once; the log records who opened it."""
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
    """Take a decision; the log names the visitor."""
    action = ACTIONS.get(name)
    if action is None:
        raise NotFoundError("the console has no such decision")
    action.check_role(visitor)
    action.do(services, ref, visitor, form)
    return redirect(request, f"/console/cases/{cases.case_of(services, ref)}")
