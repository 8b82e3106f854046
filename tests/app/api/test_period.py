"""The report of a period over HTTP: counted from the log, whatever the tables say."""

import base64
import json
from typing import Any

import pytest
from sqlmodel import Session, select

from lethe import canonical
from lethe.log.fetch import MissingFileError
from lethe.log.follow import read_log
from lethe.report.period import check
from lethe.signing.keys import PrivateKey
from models import Certificate, LogEntry
from tests.app.api.test_requests import problem
from tests.app.ledger.samples import tamper
from tests.installation import Installation, make_token
from tests.lethe.report.pdfs import needs_pdf

ALL = {"from": "2020-01-01", "to": "2099-12-31"}


@pytest.fixture
def certified(installation: Installation, with_certificate: PrivateKey) -> Installation:
    installation.caller.key = with_certificate
    return installation


def get(installation: Installation, **query: Any) -> Any:
    return installation.caller.operator("GET", "/v1/reports/period", params=ALL | query)


def entries_of(installation: Installation) -> list[bytes]:
    def fetch(path: str) -> bytes:
        response = installation.caller.http.get(f"/v1/log/{path}")
        if response.status_code == 404:
            raise MissingFileError(path)
        return bytes(response.content)

    return read_log(fetch, installation.services.ledger.verifier)[1]


def test_the_report_is_what_the_public_log_says(certified: Installation) -> None:
    assert certified.caller.erase_records("r2").status_code == 202
    certified.drain()
    certified.caller.erase_records("r3")
    answer = get(certified)
    assert answer.status_code == 200, answer.text
    verifier = certified.services.ledger.verifier
    found = check(answer.content, verifier, entries_of(certified))
    assert found["figures"]["received"] == 3
    assert found["figures"]["certified"] == 2
    assert found["figures"]["open"] == 1
    assert found["days"]["longest"] == 0
    (method,) = found["methods"]
    assert (method["certificates"], method["records"]) == (2, 2)
    assert all(one["failed"] == 0 and one["passed"] == 2 for one in found["checks"])
    # Ids of requests are secrets, and their pseudonyms no figures.
    listed = certified.caller.operator("GET", "/v1/requests").json()["items"]
    for item in listed:
        assert item["id"] not in answer.text
        assert item["ref"] not in answer.text


def test_a_period_without_requests_is_empty(certified: Installation) -> None:
    answer = get(certified, to="2020-02-01")
    verifier = certified.services.ledger.verifier
    found = check(answer.content, verifier, entries_of(certified))
    assert set(found["figures"].values()) == {0}
    assert found["methods"] == found["checks"] == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE log_entries SET event = 'request.refused', day = '2020-01-01'",
        "UPDATE erasure_requests SET state = 'failed'",
        "UPDATE certificates SET result = 'FAIL'",
    ],
)
def test_columns_that_repeat_the_log_are_not_what_is_counted(
    certified: Installation, statement: str
) -> None:
    before = get(certified).content
    execute(certified, statement)
    assert get(certified).content == before


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM certificates",
        "UPDATE certificates SET log_index = log_index + 1",
        "UPDATE certificates SET log_index = 0",
    ],
)
def test_certificates_that_are_not_those_of_the_log_give_no_report(
    certified: Installation, statement: str
) -> None:
    execute(certified, statement)
    problem(get(certified), 500, "period-changed")


def test_an_envelope_that_was_changed_gives_no_report(certified: Installation) -> None:
    with Session(certified.services.engine) as session:
        row = session.exec(select(Certificate)).one()
        payload = base64.b64decode(row.envelope["payload"])
        other = payload.replace(b'"records":"1"', b'"records":"9"')
        assert other != payload
        row.envelope = row.envelope | {"payload": base64.b64encode(other).decode()}
        session.add(row)
        session.commit()
    problem(get(certified), 500, "period-changed")


def test_an_entry_that_was_changed_gives_no_report(certified: Installation) -> None:

    def change(session: Session) -> None:
        query = select(LogEntry).where(LogEntry.event == "request.received")
        row = session.exec(query).one()
        leaf = json.loads(row.leaf)
        leaf["spec"]["at"] = "2021-01-01T00:00:00Z"
        row.leaf = canonical.encode(leaf)
        session.add(row)

    tamper(certified.services.engine, change)
    problem(get(certified), 500, "period-changed")


def execute(installation: Installation, statement: str) -> None:
    tamper(installation.services.engine, statement)


def test_who_may_read_it_and_in_which_forms(certified: Installation) -> None:
    http = certified.caller.http
    problem(http.get("/v1/reports/period", params=ALL), 401, "token-invalid")
    token = make_token(certified.services, "auditor")
    answer = http.get(
        "/v1/reports/period",
        params=ALL | {"format": "csv"},
        headers={"authorization": f"Bearer {token}"},
    )
    assert answer.text.startswith("section,name,detail,value")
    page = get(certified, format="html", language="de")
    assert "Löschanträge" in page.text
    problem(get(certified, to="2019-12-31"), 400, "query-invalid")
    problem(get(certified, to="x"), 422, "body-invalid")
    problem(get(certified, format="doc"), 422, "body-invalid")


@needs_pdf
def test_the_pdf_is_one(certified: Installation) -> None:
    answer = get(certified, format="pdf", language="fr")
    assert answer.headers["content-type"] == "application/pdf"
    assert answer.content.startswith(b"%PDF-")
