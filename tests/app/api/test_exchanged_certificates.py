"""Who exchanges certificates, evidence or references in the database has nobody served another's."""

from collections.abc import Callable

import pytest
from sqlalchemy import Engine, update
from sqlmodel import Session, col

from app.reconcile.fsck.run import fsck
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.statement import parse_statement
from lethe.signing.keys import PrivateKey
from models import Certificate
from tests.app.api.test_requests import problem
from tests.exchanged import exchange_certificates, exchange_evidence, exchange_references
from tests.installation import Installation

CERTIFICATE = ("certificate", "certificate/html", "certificate/receipt")
PARTS = (*CERTIFICATE, "evidence")


@pytest.fixture
def certified(installation: Installation, with_certificate: PrivateKey) -> Installation:
    """Records r1 and r2 were erased by two requests."""
    installation.caller.key = with_certificate
    assert installation.caller.erase_records("r2").status_code == 202
    installation.drain()
    return installation


def requests(at: Installation) -> dict[str, str]:
    """Return the references of the two requests by their ids."""
    items = at.caller.operator("GET", "/v1/requests").json()["items"]
    found = {item["id"]: item["ref"] for item in items}
    assert len(found) == 2
    return found


def served(at: Installation, request: str) -> dict[str, bytes]:
    """Return all that is served of a request."""
    answers = {part: at.caller.http.get(f"/v1/requests/{request}/{part}") for part in PARTS}
    assert {answer.status_code for answer in answers.values()} == {200}
    return {part: answer.content for part, answer in answers.items()}


def refused(at: Installation, request: str, *parts: str) -> None:
    """Insist that these are refused with the cause and the remedy, and nothing of anybody."""
    for part in parts:
        answer = at.caller.http.get(f"/v1/requests/{request}/{part}")
        told = problem(answer, 500, "certificate-changed")["detail"]
        assert "lethe log fsck" in told
        assert "restore the tables" in told
        assert not any(one in told for pair in requests(at).items() for one in pair)


def certificates_alone(engine: Engine, one: str, other: str) -> None:
    exchange_certificates(engine, one, other)


def with_references(engine: Engine, one: str, other: str) -> None:
    exchange_certificates(engine, one, other)
    exchange_references(engine, one, other)


def with_evidence(engine: Engine, one: str, other: str) -> None:
    with_references(engine, one, other)
    exchange_evidence(engine, one, other)


@pytest.mark.parametrize("exchange", [with_references, certificates_alone, with_evidence])
def test_nobody_is_served_the_certificate_of_another(
    certified: Installation, exchange: Callable[[Engine, str, str], None]
) -> None:
    engine, caller = certified.services.engine, certified.caller
    one, other = requests(certified)
    honest = {request: served(certified, request) for request in (one, other)}
    for request, ref in requests(certified).items():
        payload = parse_bundle(honest[request]["certificate"]).payload
        assert parse_statement(payload).predicate.request_ref == ref
    exchange(engine, one, other)
    for request in (one, other):
        refused(certified, request, *PARTS, "certificate/pdf")
    problem(caller.operator("GET", "/v1/models/small/versions/2"), 500, "certificate-changed")
    named = {finding.check for finding in fsck(certified.services.ledger).findings}
    assert named & {"certificate", "opening"}
    exchange(engine, one, other)
    assert {request: served(certified, request) for request in (one, other)} == honest
    assert caller.operator("GET", "/v1/models/small/versions/2").status_code == 200
    certified.check()


def test_nobody_is_served_the_evidence_of_another(certified: Installation) -> None:
    one, other = requests(certified)
    honest = served(certified, one)
    exchange_evidence(certified.services.engine, one, other)
    for request in (one, other):
        refused(certified, request, "evidence")
    for part in CERTIFICATE:
        answer = certified.caller.http.get(f"/v1/requests/{one}/{part}")
        assert answer.content == honest[part]


@pytest.mark.parametrize("envelope", [{}, {"payload": "%"}, {"payload": "e30="}])
def test_what_is_no_certificate_is_not_served(
    certified: Installation, envelope: dict[str, str]
) -> None:
    one, other = requests(certified)
    with Session(certified.services.engine) as session:
        changed = update(Certificate).where(col(Certificate.request_id) == one)
        session.connection().execute(changed.values(envelope=envelope))
        session.commit()
    refused(certified, one, *PARTS)
    served(certified, other)
