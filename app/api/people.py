"""/v1/people and /v1/cases: look a person up and act for them, for operators."""

from typing import Annotated

from fastapi import APIRouter, Response

from app.api.deps import Operator, ServicesDep
from app.api.immutable import unkept
from app.api.strict import StrictRoute
from app.schemas.people import (
    CaseView,
    ContactView,
    FoundPage,
    HeldOutRemoval,
    HeldOutRemoved,
    Imported,
    NewCase,
    PersonImport,
    PersonQuery,
)
from app.service import cases, people
from models import BearerToken

router = APIRouter(
    prefix="/v1", tags=["people"], dependencies=[Operator], route_class=StrictRoute
)
JSON = "application/json"
ByOperator = Annotated[BearerToken, Operator]


@router.post("/people/find", operation_id="findPerson")
def find(wanted: PersonQuery, services: ServicesDep) -> FoundPage:
    """Look up which records of which models are a person's; by digests, in the body alone."""
    return cases.find(services, wanted)


@router.post("/people/import", operation_id="importPeople")
def import_people(wanted: PersonImport, services: ServicesDep) -> Imported:
    """Say whose records of a model are. The same identities again change nothing."""
    found = [(one.record, one.person.identity()) for one in wanted.identities]
    return Imported(added=people.import_identities(services, wanted.model, found))


@router.post("/people/remove-held-out", operation_id="removeHeldOut")
def remove_held_out(wanted: HeldOutRemoval, services: ServicesDep) -> HeldOutRemoved:
    """Remove stored held-out rows by their ids: of people whom no identity finds."""
    return cases.remove_held_out(services, wanted)


@router.post("/cases", status_code=201, operation_id="openCase")
def open_case(
    wanted: NewCase, services: ServicesDep, token: ByOperator, response: Response
) -> CaseView:
    """Submit requests for all records of a person, on their behalf; the log names the token."""
    shown = cases.open_case(services, wanted, token.name)
    response.headers["location"] = f"/v1/cases/{shown.ref}"
    return shown


@router.get("/cases/{ref}", operation_id="getCase")
def get_case(ref: str, services: ServicesDep) -> CaseView:
    """Show a case: its parts, deadline and timeline."""
    return cases.show(services, ref)


@router.get("/cases/{ref}/summary", operation_id="getCaseSummary")
def get_summary(ref: str, services: ServicesDep) -> Response:
    """Download the signed answer; `lethe case verify` checks it offline."""
    return unkept(cases.summary(services, ref), JSON)


@router.post("/cases/{ref}/contact", operation_id="openContact")
def open_contact(ref: str, services: ServicesDep, token: ByOperator) -> ContactView:
    """Open the contact address of a case; the log has an entry of it."""
    return cases.open_contact(services, ref, token.name)


@router.post("/cases/{ref}/close", operation_id="closeCase")
def close(ref: str, services: ServicesDep, token: ByOperator) -> CaseView:
    """Close an answered case and destroy its contact address."""
    return cases.close(services, ref, token.name)
