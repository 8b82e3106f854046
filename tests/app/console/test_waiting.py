"""Requests that wait for an operator, and withdrawals: who may decide them in the console."""

import pytest
from sqlmodel import Session, col, select

from models import Model, RequestEvent
from tests.app.console.conftest import Desk
from tests.app.console.reader import Browser, read
from tests.workers.jobs.attempts.test_decisions import spoil

WHY = "restored the rows from the copy of Monday"


@pytest.fixture
def stuck(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> str:
    """The reference of the request of Ann's case, once every attempt at it was refuted."""
    spoil(monkeypatch)
    address = f"/console/cases/{desk.case}"
    desk.browser().send(f"{address}/approve", f"{address}/approve")
    desk.installation.drain()
    monkeypatch.undo()
    (part,) = shown(desk)["parts"]
    assert part["state"] == "needs-decision"
    return str(part["request_ref"])


def shown(desk: Desk) -> dict[str, list[dict[str, str]]]:
    """Return Ann's case, as the API has it."""
    answer = desk.installation.caller.operator("GET", f"/v1/cases/{desk.case}")
    assert answer.status_code == 200, answer.text
    found: dict[str, list[dict[str, str]]] = answer.json()
    return found


def logged(desk: Desk, event: str) -> list[dict[str, str]]:
    """Return what entries of an event say."""
    with Session(desk.installation.services.engine) as session:
        query = select(RequestEvent).where(RequestEvent.event == event)
        rows = session.exec(query.order_by(col(RequestEvent.log_index)))
        return [dict(one.payload) for one in rows]


def test_what_waits_is_shown_with_its_reason_and_decided_by_an_operator(
    desk: Desk, stuck: str
) -> None:
    case, request = f"/console/cases/{desk.case}", f"/console/cases/{stuck}"
    for scope in ("officer", "auditor"):
        page = desk.browser(scope).get(case)
        assert "verification FAIL also after a refit" in page.text
        assert f"{request}/retry" not in page.links
        assert "Operators decide on this" in page.text
    operator = desk.browser("operator")
    assert {f"{request}/retry", f"{request}/abandon"} <= set(operator.get(case).links)
    unexplained = operator.send(f"{request}/retry", f"{request}/retry", why="")
    assert unexplained.status_code == 422
    assert logged(desk, "request.decided") == []
    decided = operator.send(f"{request}/retry", f"{request}/retry", why=WHY)
    assert decided.url.path == case  # back on the page of the case
    assert WHY in read(decided).text
    assert "retry" in read(decided).text
    (said,) = logged(desk, "request.decided")
    assert (said["decision"], said["why"]) == ("retry", WHY)
    assert said["by"].startswith("test ")
    desk.installation.drain()  # nobody mended the rows: it is refuted again
    assert shown(desk)["parts"][0]["state"] == "needs-decision"
    abandoned = operator.send(f"{request}/abandon", f"{request}/abandon", why="no copy")
    assert "Failed" in read(abandoned).text
    assert f"{request}/abandon" not in operator.get(case).links
    late = operator.send(f"{request}/abandon", f"{request}/abandon", why="again")
    assert late.status_code == 409
    with Session(desk.installation.services.engine) as session:
        assert session.exec(select(Model)).one().state == "quarantined"
    desk.installation.check()


def test_neither_officers_nor_replayed_forms_decide(desk: Desk, stuck: str) -> None:
    request = f"/console/cases/{stuck}"
    operator, officer = desk.browser("operator"), desk.browser("officer")
    form = operator.get(f"{request}/retry").form(f"{request}/retry")
    for browser in (officer, desk.browser("auditor")):
        assert browser.http.get(f"{request}/retry").status_code == 403
        own = browser.get("/console").form("/console/sign-out").fields
        for name in ("retry", "abandon"):
            assert browser.post(f"{request}/{name}", own | {"why": WHY}).status_code == 403
    # A form of the officer's own session, whose MAC is of this very address.
    from app.console.forms import token
    from app.console.session import PURPOSE, cookie_name, unpack

    services = desk.installation.services
    cookie = officer.http.cookies[cookie_name(services)]
    said = unpack(services, PURPOSE, cookie)
    assert said is not None
    made = token(services, said["session"], f"{request}/retry")
    refused = officer.post(f"{request}/retry", {"form_token": made, "why": WHY})
    assert refused.status_code == 403
    assert "only the role operator" in read(refused).text
    foreign = officer.post(f"{request}/retry", {**form.fields, "why": WHY})
    assert foreign.status_code == 403
    assert logged(desk, "request.decided") == []
    sent = {**form.fields, "why": WHY}
    assert operator.post(f"{request}/retry", sent).status_code == 200
    again = operator.post(f"{request}/retry", sent)
    assert again.status_code == 403
    assert "sent before" in again.text
    assert len(logged(desk, "request.decided")) == 1
    assert operator.http.get(f"/console/cases/{desk.case}x/retry").status_code == 404


def test_a_case_is_withdrawn_by_whoever_submitted_it(desk: Desk) -> None:
    case = f"/console/cases/{desk.case}"
    other = desk.browser("operator")
    assert f"{case}/withdraw" not in other.get(case).links
    refused = other.send(f"{case}/withdraw", f"{case}/withdraw")
    assert refused.status_code == 403
    assert "another operator submitted this request" in read(refused).text
    refs = {one for one in other.get("/console").links if "/console/cases/" in one} - {case}
    for signed in refs:  # a key's request is withdrawn with that key
        assert other.send(f"{signed}/withdraw", f"{signed}/withdraw").status_code == 403
    assert logged(desk, "request.withdrawn") == []
    own = Browser(desk.installation.caller.http, desk.installation.caller.token)
    assert f"{case}/withdraw" in own.get(case).links
    assert "cannot be undone" in own.get(f"{case}/withdraw").text
    done = own.send(f"{case}/withdraw", f"{case}/withdraw")
    assert done.url.path == case
    assert "Withdrawn" in read(done).text
    (said,) = logged(desk, "request.withdrawn")
    assert said["by"].startswith("test ")
    assert f"{case}/withdraw" not in own.get(case).links
    again = own.send(f"{case}/withdraw", f"{case}/withdraw")
    assert again.status_code == 409
    desk.installation.check()


def test_what_a_worker_has_done_is_not_withdrawn(desk: Desk) -> None:
    case = f"/console/cases/{desk.case}"
    own = Browser(desk.installation.caller.http, desk.installation.caller.token)
    desk.browser().send(f"{case}/approve", f"{case}/approve")
    with Session(desk.installation.services.engine) as session:
        from models import ErasureRequest, Job

        request = session.exec(
            select(ErasureRequest).where(ErasureRequest.case_ref == desk.case)
        ).one()
        job = session.exec(select(Job).where(Job.request_id == request.id)).one()
        job.lease_token = 1  # a worker has begun
        session.add(job)
        session.commit()
    late = own.send(f"{case}/withdraw", f"{case}/withdraw")
    assert late.status_code == 409
    assert "execution has begun" in read(late).text
    assert logged(desk, "request.withdrawn") == []


def test_a_refusal_names_the_models_that_it_does_not_affect(desk: Desk, stuck: str) -> None:
    address = f"/console/cases/{desk.case}/refuse"
    (part,) = shown(desk)["parts"]
    page = desk.browser().get(address)
    assert (
        f"Not affected, as it is under way or waits for an operator: {part['model']}"
        in page.text
    )
    (signed, *_) = {
        one
        for one in desk.browser().get("/console").links
        if "/console/cases/" in one and desk.case not in one
    }
    assert "Not affected" not in desk.browser().get(f"{signed}/refuse").text
