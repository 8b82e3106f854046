"""The queue and the pages of cases: what is shown to whom, and what a form does."""

import csv
import io
import json
import re

import pytest

from tests.app.console.conftest import Desk
from tests.app.console.reader import read
from tests.workers.jobs.desk.test_cases import person
from tests.workers.jobs.desk.test_people import ANN, BOB, named


def test_the_queue_lists_what_is_open_and_filters(desk: Desk) -> None:
    officer = desk.browser()
    page = officer.get("/console")
    assert page.links.count(f"/console/cases/{desk.case}") == 1
    assert sum("/console/cases/" in one for one in page.links) == 3
    assert "TICKET" not in page.text
    none = officer.get("/console?state=certified&model=small&overdue=false&due_within=9")
    assert sum("/console/cases/" in one for one in none.links) == 0
    assert "Nothing matches" in none.text
    for wrong in ("state=open", "due_within=x", "overdue=maybe", "after=x", "model=.."):
        assert officer.http.get(f"/console?{wrong}").status_code == 400
    assert officer.http.get("/console?model=none").status_code == 404


def test_pages_follow_one_another(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.console.queue.PAGE", 2)
    officer = desk.browser()
    first = officer.get("/console?model=small")
    following = next(one for one in first.links if "after=" in one)
    second = officer.get(following)
    assert not any("after=" in one for one in second.links)
    cases = [one for page in (first, second) for one in page.links if "/cases/" in one]
    assert len(set(cases)) == len(cases) == 3


def test_the_export_is_the_queue(desk: Desk) -> None:
    auditor = desk.browser("auditor")
    listed = json.loads(auditor.http.get("/console/queue.json").text)
    assert len(listed) == 3
    rows = list(csv.DictReader(io.StringIO(auditor.http.get("/console/queue.csv").text)))
    assert [one["ref"] for one in rows] == [one["ref"] for one in listed]
    assert auditor.http.get("/console/queue.json?state=certified").json() == []
    assert auditor.http.get("/console/queue.xml").status_code == 404


def test_an_export_in_several_pieces_has_each_row_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    auditor = desk.browser("auditor")
    whole = auditor.http.get("/console/queue.json").json()
    assert len(whole) == 3
    table = auditor.http.get("/console/queue.csv").text
    monkeypatch.setattr("app.console.queue.AT_ONCE", 2)
    assert auditor.http.get("/console/queue.json").json() == whole
    assert auditor.http.get("/console/queue.csv").text == table


def test_a_person_is_found_and_in_no_address(desk: Desk) -> None:
    officer = desk.browser()
    found = officer.send("/console/search", "/console/search", kind="email", value=ANN)
    page = read(found)
    assert f"/console/cases/{desk.case}" in page.links
    assert sum("/cases/" in one for one in page.links) == 1
    assert found.url.query == b""
    assert ANN not in found.text
    more = page.forms[-2]  # of this list: the digests stay with it
    exported = officer.post("/console/search", {**more.fields, "as": "json"})
    assert [one["case"] for one in exported.json()] == [desk.case]
    bob = read(officer.send("/console/search", "/console/search", kind="email", value=BOB))
    assert f"/console/cases/{desk.case}" not in bob.links
    of_key = read(officer.send("/console/search", "/console/search", requester="alice"))
    assert sum("/cases/" in one for one in of_key.links) == 2
    wrong = officer.send("/console/search", "/console/search", kind="<b>", value=ANN)
    assert wrong.status_code == 422
    assert ANN not in wrong.text
    assert desk.browser("auditor").http.get("/console/search").status_code == 403


def test_a_case_is_approved_by_another_and_shown_until_it_is_closed(desk: Desk) -> None:
    officer, address = desk.browser(), f"/console/cases/{desk.case}"
    page = officer.get(address)
    assert f"{address}/approve" in page.links
    asked = officer.get(f"{address}/approve")
    assert "cannot be undone" in asked.text
    done = officer.send(f"{address}/approve", f"{address}/approve")
    assert done.url.path == address
    assert "Approved" in done.text
    desk.installation.drain()
    answered = officer.get(address)
    assert "Answered: can be closed" in answered.text
    assert any("/console/certificates/" in one for one in answered.links)
    signed = officer.http.get(f"{address}/answer")
    assert json.loads(signed.content)["payloadType"]
    contact = officer.send(f"{address}/contact", f"{address}/contact")
    assert "Ann, Main St 1" in contact.text
    closed = officer.send(f"{address}/close", f"{address}/close")
    assert "Closed" in read(closed).text
    gone = officer.send(f"{address}/contact", f"{address}/contact")
    assert gone.status_code == 404
    desk.installation.check()


def test_nobody_approves_their_own_submission(desk: Desk) -> None:
    from tests.app.console.reader import Browser

    own = Browser(desk.installation.caller.http, desk.installation.caller.token)
    address = f"/console/cases/{desk.case}"
    refused = own.send(f"{address}/approve", f"{address}/approve")
    assert refused.status_code == 403
    assert "nobody approves their own submission" in read(refused).text
    assert "Awaits review" in own.get(address).text


def test_each_decision_of_an_officer(desk: Desk) -> None:
    officer, address = desk.browser(), f"/console/cases/{desk.case}"
    paused = officer.send(f"{address}/pause", f"{address}/pause", reason="identity")
    assert "Paused" in read(paused).text
    assert f"{address}/approve" not in officer.get(address).links
    resumed = officer.send(address, f"{address}/resume")
    assert "Awaits review" in read(resumed).text
    assert f"{address}/extend" in officer.get(address).links
    extended = officer.send(f"{address}/extend", f"{address}/extend", reason="number")
    assert f"{address}/extend" not in officer.get(address).links  # the law allows it once
    assert "we have very many requests" in extended.text
    assert re.search(r"New deadline\s*\d{4}-\d\d-\d\d \d\d:\d\d UTC", read(extended).text)
    again = officer.send(f"{address}/extend", f"{address}/extend", reason="number")
    assert again.status_code == 409
    unknown = officer.send(f"{address}/refuse", f"{address}/refuse", reason="boredom")
    assert unknown.status_code == 409
    empty = officer.send(f"{address}/refuse", f"{address}/refuse")
    assert empty.status_code == 422
    noted = officer.send(address, f"{address}/note", text="asked for a passport")
    assert "asked for a passport" in noted.text
    assert "asked for a passport" not in desk.browser("auditor").http.get(address).text
    form = officer.get(address).form(f"{address}/assign")
    name = re.search(r"<option selected>([^<]+)<", officer.http.get(address).text)
    assert name is not None
    assigned = officer.post(form.action, {**form.fields, "to": name.group(1)})
    assert read(assigned).text.count("Assigned") >= 2
    nobody = officer.send(address, f"{address}/assign", to="nobody")
    assert nobody.status_code == 404
    refused = officer.send(f"{address}/refuse", f"{address}/refuse", reason="no-ground")
    assert "there is no legal ground for a deletion" in refused.text
    assert officer.http.get(f"{address}/cut").status_code == 404
    desk.installation.check()


def test_auditors_read_and_decide_nothing(desk: Desk) -> None:
    auditor, address = desk.browser("auditor"), f"/console/cases/{desk.case}"
    page = auditor.get(address)
    assert {one.action for one in page.forms} == {"/console/sign-out", "/console/language"}
    assert f"{address}/approve" not in page.links
    token = page.form("/console/sign-out").fields
    for name in ("approve", "refuse", "note", "assign", "close", "contact"):
        assert auditor.post(f"{address}/{name}", token).status_code == 403
        assert auditor.http.get(f"{address}/{name}").status_code in (403, 404)
    assert auditor.http.get(f"{address}/answer").status_code == 403


def test_no_page_holds_a_request_id(desk: Desk) -> None:
    """The id gives access to scope and evidence, and an address is copied into tickets."""
    shown = desk.installation.caller.operator("GET", f"/v1/cases/{desk.case}").json()
    identity = shown["parts"][0]["request"]
    for scope in ("operator", "officer", "auditor"):
        browser = desk.browser(scope)
        for address in ("/console", f"/console/cases/{desk.case}"):
            assert identity not in browser.http.get(address).text


def test_every_language_has_the_same_texts(desk: Desk) -> None:
    officer = desk.browser()
    german = officer.send("/console", "/console/language", language="de")
    assert german.url.path == "/console"
    page = officer.get("/console")
    assert "Fälle" in page.text
    officer.send("/console", "/console/language", language="xx")
    assert "Fälle" in officer.get("/console").text
    french = desk.browser().http.get("/console", headers={"accept-language": "fr-CH, de;q=0.5"})
    assert '<html lang="fr">' in french.text


def test_a_case_is_opened_for_a_person_and_approved_by_another(desk: Desk) -> None:
    officer = desk.browser()
    assert "/console/open" in officer.get("/console").links
    fields = {
        "kind": "email",
        "value": BOB,
        "regulation": "ccpa",
        "ticket": "TICKET-9",
        "contact": "by post",
    }
    asked = officer.send("/console/open", "/console/open", None, **fields)
    assert asked.url.path.startswith("/console/cases/")
    assert "Awaits review" in read(asked).text  # a requester's key has asked for it before
    fields["value"] = "nobody@example.org"
    opened = officer.send("/console/open", "/console/open", None, **fields)
    page = read(opened)
    assert opened.url.path.startswith("/console/cases/")
    assert "Nothing found" in page.text
    assert "CCPA" in page.text
    for text in ("nobody@example.org", "TICKET-9", "by post"):
        assert text not in opened.text
        assert text not in str(opened.url)
    for change in ({"ticket": ""}, {"value": ""}, {"regulation": "x"}, {"model": "../"}):
        refused = officer.send("/console/open", "/console/open", None, **{**fields, **change})
        assert refused.status_code == 422, change
    unknown = officer.send(
        "/console/open", "/console/open", None, **{**fields, "model": "none"}
    )
    assert unknown.status_code == 404
    assert desk.browser("auditor").http.get("/console/open").status_code == 403
    desk.installation.check()


def test_a_legal_hold_is_on_the_case_and_in_the_queue(desk: Desk) -> None:
    reason = "Smith v. Example"
    answer = desk.installation.caller.operator(
        "POST", "/v1/holds", json={"ref": desk.case, "reason": reason}
    )
    assert answer.status_code == 201, answer.text
    officer, auditor = desk.browser(), desk.browser("auditor")
    for browser, sees in ((officer, True), (auditor, False)):
        page = browser.get(f"/console/cases/{desk.case}").text
        assert "Legal holds" in page
        assert answer.json()["id"] in page
        assert (reason in page) == sees, "auditors read no reasons"
    queue = officer.http.get("/console").text
    assert queue.count("<strong>Under a legal hold</strong>") == 1
    rows = {
        held: officer.http.get(f"/console?held={held}").text.count('<th scope="row">')
        for held in ("true", "false")
    }
    assert rows == {"true": 1, "false": 2}


def test_what_was_done_in_several_models_is_one_line_of_the_timeline(desk: Desk) -> None:
    caller = desk.installation.caller
    assert caller.register_model(named(), decide="review", ref="second").status_code == 201
    desk.installation.drain()
    wanted = {"person": person(BOB), "ticket": "TICKET-9"}
    answer = caller.operator("POST", "/v1/cases", json=wanted)
    assert answer.status_code == 201, answer.text
    case = answer.json()
    assert len(case["parts"]) == 2
    page = desk.browser().get(f"/console/cases/{case['ref']}")
    timeline = page.text[page.text.index("Timeline") :]
    assert timeline.count("Case opened") == 1
    assert re.search(r"Case opened\s+second, small", timeline), timeline
    opened = [one for one in case["timeline"] if one["event"] == "case.opened"]
    assert {f"/console/log/{one['log_index']}" for one in opened} <= set(page.links)
