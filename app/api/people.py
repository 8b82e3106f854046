"""/v1/people and /v1/cases: look a person up and act for them, for operators and officers."""

from typing import Annotated

from fastapi import APIRouter, Response

from app.api.http.deps import Deciding, Operator, ServicesDep
from app.api.http.immutable import unkept
from app.api.http.strict import StrictRoute
from app.schemas.base import Page
from app.schemas.people import (
    Assignment,
    CaseNote,
    CaseView,
    ContactView,
    FoundPage,
    HeldOutRemoval,
    HeldOutRemoved,
    Imported,
    NewCase,
    PersonImport,
    PersonQuery,
    QueueItem,
    QueueQuery,
    ReasonedDecision,
)
from app.service.desk import answer, cases, opening, people
from app.service.desk import decisions as case_decisions
from app.service.desk import queue as case_queue
from models import BearerToken

router = APIRouter(
    prefix="/v1", tags=["people"], dependencies=[Deciding], route_class=StrictRoute
)
JSON = "application/json"
ByOfficer = Annotated[BearerToken, Deciding]


@router.post("/people/find", operation_id="findPerson")
def find(wanted: PersonQuery, services: ServicesDep) -> FoundPage:
    """Look up which records of which models are a person's; by digests, in the body alone."""
    return opening.find(services, wanted)


@router.post("/people/import", operation_id="importPeople")
def import_people(
    wanted: PersonImport, services: ServicesDep, token: Annotated[BearerToken, Operator]
) -> Imported:
    """Add identities to records of a model. Repeating the same identities changes nothing."""
    found = [(one.record, one.person.identity()) for one in wanted.identities]
    return Imported(added=people.import_identities(services, wanted.model, found, token.name))


@router.post("/people/remove-held-out", operation_id="removeHeldOut", dependencies=[Operator])
def remove_held_out(wanted: HeldOutRemoval, services: ServicesDep) -> HeldOutRemoved:
    """Remove stored held-out rows by their ids, for people whom no identity finds."""
    return opening.remove_held_out(services, wanted)


@router.post("/cases", status_code=201, operation_id="openCase")
def open_case(
    wanted: NewCase, services: ServicesDep, token: ByOfficer, response: Response
) -> CaseView:
    """Submit requests for all records of a person, on their behalf; the log names the token."""
    shown = opening.open_case(services, wanted, token.name)
    response.headers["location"] = f"/v1/cases/{shown.ref}"
    return shown


@router.post("/cases/search", operation_id="searchCases")
def search_cases(wanted: QueueQuery, services: ServicesDep) -> Page[QueueItem]:
    """List open requests and cases by days left, or those that match the filters."""
    return case_queue.search(services, wanted)


@router.get("/cases/{ref}", operation_id="getCase")
def get_case(ref: str, services: ServicesDep) -> CaseView:
    """Show a case: its parts, deadline and timeline."""
    return cases.show(services, ref)


@router.get("/cases/{ref}/summary", operation_id="getCaseSummary")
def get_summary(ref: str, services: ServicesDep) -> Response:
    """Download the signed answer; `lethe case verify` checks it offline."""
    return unkept(answer.summary(services, ref), JSON)


@router.post("/cases/{ref}/contact", operation_id="openContact")
def open_contact(ref: str, services: ServicesDep, token: ByOfficer) -> ContactView:
    """Open the contact address of a case; the log has an entry of it."""
    return cases.open_contact(services, ref, token.name)


@router.post("/cases/{ref}/close", operation_id="closeCase")
def close(ref: str, services: ServicesDep, token: ByOfficer) -> CaseView:
    """Close an answered case and destroy its contact address."""
    return cases.close(services, ref, token.name)


@router.post("/cases/{ref}/approve", operation_id="approveCase")
def approve(ref: str, services: ServicesDep, token: ByOfficer) -> CaseView:
    """Approve the execution of a request, or of all requests of a case, that wait for it."""
    case_decisions.approve(services, ref, token.name)
    return cases.show(services, ref)


@router.post("/cases/{ref}/refuse", operation_id="refuseCase")
def refuse(
    ref: str, wanted: ReasonedDecision, services: ServicesDep, token: ByOfficer
) -> CaseView:
    """Refuse the requests of a case, or one, that no worker has started, on a legal ground."""
    case_decisions.refuse(services, ref, token.name, wanted.reason)
    return cases.show(services, ref)


@router.post("/cases/{ref}/extend", operation_id="extendCase")
def extend(
    ref: str, wanted: ReasonedDecision, services: ServicesDep, token: ByOfficer
) -> CaseView:
    """Extend the deadline of a request or a case, once."""
    case_decisions.extend(services, ref, token.name, wanted.reason)
    return cases.show(services, ref)


@router.post("/cases/{ref}/pause", operation_id="pauseCase")
def pause(
    ref: str, wanted: ReasonedDecision, services: ServicesDep, token: ByOfficer
) -> CaseView:
    """Stop the clock of a request or a case while its person is asked; only under the GDPR."""
    case_decisions.pause(services, ref, token.name, wanted.reason)
    return cases.show(services, ref)


@router.post("/cases/{ref}/resume", operation_id="resumeCase")
def resume(ref: str, services: ServicesDep, token: ByOfficer) -> CaseView:
    """Restart the clock of a paused request or case; it waits for review."""
    case_decisions.resume(services, ref, token.name)
    return cases.show(services, ref)


@router.post("/cases/{ref}/note", operation_id="noteCase")
def note(ref: str, wanted: CaseNote, services: ServicesDep, token: ByOfficer) -> CaseView:
    """Keep a note with an open request or case; operators read it, the log has its digest."""
    case_decisions.note(services, ref, token.name, wanted.text)
    return cases.show(services, ref)


@router.post("/cases/{ref}/assign", operation_id="assignCase")
def assign(ref: str, wanted: Assignment, services: ServicesDep, token: ByOfficer) -> CaseView:
    """Name the operator who looks after an open request or case."""
    case_decisions.assign(services, ref, token.name, wanted.to)
    return cases.show(services, ref)
