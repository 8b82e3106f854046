"""/intake/case: follow a case by its code, save its files, withdraw it.

The code is sent only in the body of forms. In the address on the receipt it is in the fragment,
which browsers do not send.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool

from app.api.http import pages
from app.api.http.attempts import Limits, client_of, of_client
from app.api.http.deps import ServicesDep
from app.api.http.parsing import DocumentsDep
from app.intake.forms import IntakeForm, Posted, address_of
from app.intake.render import chosen, language_of, render
from app.intake.route import CODES, router
from app.problems import NotFoundError
from app.schemas.people import CaseView, PartView
from app.service.context import Services
from app.service.desk import answer
from app.service.intake import following
from app.service.intake.case_code import case_code, read_case_code
from app.service.intake.errors import IntakeCaseError
from app.service.issued import certificates, documents
from lethe.report.pdf import qr_code
from lethe.words.reasons import reason_in, remedies_of
from lethe.words.texts import Language

routes = router()
DECIDED = ("request.refused", "request.extended", "request.paused")
# They concern whoever made the request, and not who follows it.
OF_REQUESTER = (*DECIDED, "request.resumed", "request.withdrawn")
TIMELINE = 200  # items on the page; each attempt of a worker may add several


@dataclass(frozen=True, slots=True)
class Step:
    """An event as shown to the person."""

    at: datetime
    event: str
    model: str
    reason: str | None
    due_at: str | None


def steps_of(case: CaseView, language: Language, followed: Collection[str]) -> list[Step]:
    """Return the timeline from the case's receipt on, without an earlier request's events.

    followed: models in which the case follows another's request; decisions on it are left out.
    """
    found: list[Step] = []
    opened = False
    for item in case.timeline:
        if item.at < case.received_at:
            continue
        if item.model in followed and item.event in OF_REQUESTER:
            continue
        if item.event == "case.opened":
            if opened:
                continue
            opened = True
        reason = item.detail.get("reason") if item.event in DECIDED else None
        if reason is not None:
            reason = reason_in(language, case.regulation, reason) or reason
        found.append(Step(item.at, item.event, item.model, reason, item.detail.get("due_at")))
    return found[:TIMELINE]


def case_page(
    request: Request, services: Services, ref: str, *, received: bool = False
) -> Response:
    """Return the page of a case, after its code was given or it was just opened."""
    case = following.follow(services, ref)
    followed = following.followed(services, case)
    code = case_code(services.root_secret, ref)
    public = services.settings.public_url.rstrip("/")  # with the path before /intake, if any
    own = f"{address_of(request, services)}{request.scope.get('root_path', '')}"
    address = f"{public or own}/intake/case#{code}"
    return render(
        request,
        "case.html",
        case=case,
        code=code,
        received=received,
        picture=qr_code(address),
        steps=steps_of(case, language_of(request), followed),
        followed=followed,
        remedies=remedies_of(language_of(request), case.regulation),
        has_pdf=find_spec("weasyprint") is not None,  # of the extra `pdf`
        several=len(case.parts) > 1,
        can_withdraw=case.state == "open" and following.can_withdraw(services, ref),
        paused={
            None if one.model in followed else one.state
            for one in case.parts
            if one.outcome == "in progress"
        }
        == {"paused"},
        datetime=datetime,
    )


@routes.get("/case", operation_id="intakeFind")
def find(request: Request) -> Response:
    """Ask for the code of a case; the script reads it from the fragment."""
    return render(request, "find.html")


@routes.post("/case", operation_id="intakeCase")
def show(request: Request, services: ServicesDep, form: Posted) -> Response:
    """Show a case to the holder of its code."""
    return case_page(request, services, _case_of(request, services, form))


@routes.post("/withdraw", operation_id="intakeWithdraw")
def withdraw(request: Request, services: ServicesDep, form: Posted) -> Response:
    """Withdraw a case; repeating it has no effect."""
    ref = _case_of(request, services, form)
    following.withdraw(services, ref)
    return case_page(request, services, ref)


@routes.post("/file", operation_id="intakeFile")
async def file(
    request: Request, services: ServicesDep, turns: DocumentsDep, form: Posted
) -> Response:
    """Download the receipt, the signed answer, or a certificate of a case."""
    ref = await run_in_threadpool(_case_of, request, services, form)
    # A PDF takes a second: many of them must not use up the threads of all routes.
    return await turns.parse(
        lambda: _file(request, services, ref, form.of("file"), form.of("part"))
    )


def _case_of(request: Request, services: Services, form: IntakeForm) -> str:
    """Return the case of the code in a form. Raises IntakeCaseError, counted by client."""
    request.state.language = chosen(form.of("language"))
    limits: Limits = request.app.state.intake_limits
    client = client_of(request)
    limits.check(*of_client(CODES, client))
    try:
        return read_case_code(services.root_secret, form.of("code"))
    except IntakeCaseError:
        limits.take(*of_client(CODES, client))
        raise


def _file(request: Request, services: Services, ref: str, name: str, part: str) -> Response:
    if name == "receipt":
        return _saved(following.receipt(services, ref), "application/json", "receipt.json")
    case = following.follow(services, ref)
    if name == "answer" and case.state != "open":
        return _saved(answer.summary(services, ref), "application/json", "answer.json")
    request_id = _certified(case, part).request
    assert request_id is not None
    language = language_of(request)
    made: dict[str, tuple[Callable[[], bytes], str, str]] = {
        "html": (
            lambda: documents.html(services, request_id, language),
            "text/html; charset=utf-8",
            "certificate.html",
        ),
        "pdf": (
            lambda: documents.pdf(services, request_id, language),
            "application/pdf",
            "certificate.pdf",
        ),
        "certificate": (
            lambda: certificates.bundle(services, request_id),
            "application/json",
            "certificate.sigstore.json",
        ),
    }
    if name not in made:
        raise NotFoundError("the page has no such file")
    make, kind, filename = made[name]
    return _saved(make(), kind, filename)


def _certified(case: CaseView, part: str) -> PartView:
    """Return a part, by its place, that has a certificate. Raises NotFoundError."""
    found = {
        str(place): one for place, one in enumerate(case.parts) if one.certificate is not None
    }
    if part not in found:
        raise NotFoundError("the case has no such certificate")
    return found[part]


def _saved(data: bytes, kind: str, name: str) -> Response:
    return Response(data, media_type=kind, headers=pages.attachment(name))
