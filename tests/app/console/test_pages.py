"""Certificates, models, the log, audits and health: what the pages show, and to whom."""

import re
from base64 import b64decode
from dataclasses import replace
from datetime import date
from hashlib import sha256
from typing import Any

import pytest
from sqlmodel import Session, select

from app.console import cases, certificates, opening, overview, queue
from app.console.render import words
from app.console.sign_in import entrance
from app.service.health import PARTS
from app.service.issued.retraining import last_retraining
from lethe.canonical import format_base64
from lethe.certificates.attack_curve import AttackCurve, spelled
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.cost import cost_of
from lethe.certificates.statement import CheckPart
from lethe.report.certificate import Sheet
from lethe.words.texts import LANGUAGES
from models import Certificate
from tests.app.console.conftest import Desk
from tests.app.console.reader import Browser, read
from tests.installation import Installation, make_token
from tests.lethe.certificates.build import Office, contents
from tests.workers.jobs.attempts.test_seconds import refute_first

PAGES = (
    "",
    "/open",
    "/search",
    "/models",
    "/models/small",
    "/log",
    "/log/0",
    "/audits",
    "/reports",
    "/health",
)


@pytest.fixture
def done(desk: Desk) -> Desk:
    """The desk once its case is certified."""
    address = f"/console/cases/{desk.case}/approve"
    assert desk.browser().send(address, address).status_code == 200
    desk.installation.drain()
    return desk


def certificate(done: Desk, browser: Browser) -> str:
    """Return the address of the case's certificate."""
    links = browser.get(f"/console/cases/{done.case}").links
    return next(one for one in links if one.startswith("/console/certificates/"))


def test_a_certificate_is_shown_with_its_checks(done: Desk) -> None:
    auditor = done.browser("auditor")
    address = certificate(done, auditor)
    page = auditor.get(address)
    assert "Erasure confirmed" in page.text
    assert page.text.count("passed") >= 9
    files = {name: auditor.http.get(f"{address}/{name}").content for name in ("bundle", "html")}
    for check in Sheet.of(files["bundle"]).statement.predicate.checks:
        assert f" {check.name} " in page.text
        assert check.quantity in page.text
    request = done.installation.caller.operator("GET", f"/v1/cases/{done.case}").json()
    path = request["parts"][0]["certificate"]
    assert files["bundle"] == done.installation.caller.http.get(path).content
    assert sha256(files["bundle"]).hexdigest() in page.text
    document = auditor.http.get(f"{address}/html", headers={"accept-language": "de"})
    assert "style-src 'sha256-" in document.headers["content-security-policy"]
    assert request["parts"][0]["request"] not in auditor.http.get(address).text
    assert auditor.http.get(f"{address}/doc").status_code == 404
    assert auditor.http.get("/console/certificates/none").status_code == 404


def test_curves_that_a_certificate_states_are_drawn(
    done: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is another office's, so the page says that it does not verify, and draws it."""
    curve = AttackCurve(9, 9, ((0, 0), (1, 5), (9, 9)), ((0, 0), (9, 9)), ("0.4", "0.4"))
    names = ("yeom:roc", "<b>:roc", "song:roc")
    values = (spelled(curve), spelled(curve), "0.5")
    checks = tuple(
        CheckPart(n, name, "curve", value, None, None, True)
        for n, (name, value) in enumerate(zip(names, values, strict=True), 1)
    )
    auditor = done.browser("auditor")
    address = certificate(done, auditor)
    assert '<svg class="curve"' not in auditor.http.get(address).text
    model = replace(contents()[1].model, ref="small")
    file = Office().certify(checks=checks, model=model).bundle
    monkeypatch.setattr("app.service.issued.certificates.bundle", lambda *_: file)
    page = auditor.http.get(address)
    assert "Erasure NOT confirmed" in read(page).text
    assert page.text.count('class="curve"') == 2
    assert "<b>" not in page.text
    assert read(page).text.count("drawn below") == 2


def test_the_cost_is_what_the_certificate_states(done: Desk) -> None:
    auditor = done.browser("auditor")
    address = certificate(done, auditor)
    parameters = Sheet.of(auditor.http.get(f"{address}/bundle").content)
    stated = parameters.statement.predicate.method.parameters
    assert float(stated["cost.seconds"]) >= 0
    assert float(stated["verification.seconds"]) > 0
    page = auditor.get(address)
    assert f"{float(stated['cost.seconds']):.3g} s" in page.text
    # A ridge head is judged without a refit, and no certificate of this model states one.
    assert "not measured: no recent certificate of this model states a retraining" in page.text
    # What another office signed is on no page, however it got into the table.
    again = CheckPart(1, "re-execution", "digest", "equal", None, "equal", True)
    _, predicate = contents()
    slow = {"cost.seconds": "1", "verification.seconds": "77"}
    office = Office()
    made = office.certify(
        checks=(again,),
        model=replace(predicate.model, ref="small"),
        method=replace(predicate.method, id="forest-exact", parameters=slow),
    )
    assert cost_of(Sheet.of(made.bundle).statement.predicate).retraining == 77.0
    payload = format_base64(parse_bundle(made.bundle).payload)
    services = done.installation.services
    for planted in ({"payload": payload}, {"payload": "%"}, {}):
        with Session(services.engine) as session:
            row = session.exec(select(Certificate)).one()
            row.envelope = {**row.envelope, **planted} if planted else {}
            session.add(row)
            session.commit()
        assert last_retraining(services, "small") is None


def test_a_refit_is_shown_beside_and_then_of_the_last_certificate_that_states_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refuted removal is refitted: its certificate states both, the next one refers to it."""
    services = desk.installation.services
    refute_first(monkeypatch)
    officer = desk.browser()
    address = f"/console/cases/{desk.case}"
    officer.send(f"{address}/approve", f"{address}/approve")
    desk.installation.drain()
    refitted = certificate(desk, officer)
    page = officer.get(refitted)
    assert "by the method itself" in page.text
    stated = Sheet.of(officer.http.get(f"{refitted}/bundle").content).statement.predicate
    assert stated.method.id.endswith("-refit")
    assert f"{float(stated.method.parameters['escalation.seconds']):.3g} s" in page.text
    found = last_retraining(services, "small")
    assert found is not None
    assert found.seconds == float(stated.method.parameters["cost.seconds"])
    assert f"/console/certificates/{found.ref}" == refitted
    others = {one for one in officer.get("/console").links if "/console/cases/" in one}
    for other in others:
        officer.send(f"{other}/approve", f"{other}/approve")
    desk.installation.drain()
    latest = next(
        one
        for one in officer.get("/console/models/small").links
        if one.startswith("/console/certificates/") and one != refitted
    )
    after = officer.get(latest)
    assert "of another erasure from this model" in after.text
    assert refitted in after.links


def test_a_request_without_a_certificate_has_no_page(desk: Desk) -> None:
    officer = desk.browser()
    shown = desk.installation.caller.operator("GET", f"/v1/cases/{desk.case}").json()
    ref = shown["parts"][0]["request_ref"]
    page = officer.http.get(f"/console/certificates/{ref}")
    assert page.status_code == 404
    assert "no certificate yet" in read(page).text


def test_a_model_has_its_versions_and_their_certificates(done: Desk) -> None:
    auditor = done.browser("auditor")
    assert "/console/models/small" in auditor.get("/console/models").links
    page = auditor.get("/console/models/small")
    assert certificate(done, auditor) in page.links
    assert page.text.count("current") == 1
    assert auditor.http.get("/console/models/small?after=x").status_code == 400
    assert auditor.http.get("/console/models/none").status_code == 404


def test_the_log_is_walked_to_its_beginning(
    done: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.console.overview.PAGE", 4)
    auditor, address = done.browser("auditor"), "/console/log"
    seen: set[str] = set()
    while address:
        page = auditor.get(address)
        found = {one for one in page.links if one.startswith("/console/log/")}
        assert not seen & found
        seen |= found
        earlier = [one for one in page.links if "log?first=" in one]
        address = earlier[0] if "Earlier" in page.text else ""
    size = len(seen)
    assert seen == {f"/console/log/{index}" for index in range(size)}
    assert auditor.http.get(f"/console/log/{size}").status_code == 404
    assert auditor.http.get("/console/log/x").status_code == 400
    only = auditor.get("/console/log?event=request.approved")
    assert sum(one.startswith("/console/log/") for one in only.links) == 1
    assert auditor.http.get("/console/log?event=nothing").status_code == 404


def test_an_entry_carries_what_its_check_needs(done: Desk) -> None:
    text = done.browser("auditor").http.get("/console/log/3").text
    view = done.installation.caller.http.get("/v1/log/entries?after=2&limit=1").json()
    entry = view["items"][0]
    assert f'data-leaf="{entry["leaf"]}"'.replace("+", "&#43;") in text or entry["leaf"] in text
    assert f'data-size="{entry["tree_size"]}"' in text
    assert " ".join(entry["hashes"]) in text
    assert b64decode(entry["leaf"])
    assert "proof.mjs" in text


def test_a_page_of_the_log_carries_the_proof_of_its_range(
    done: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.console.overview.PAGE", 3)
    auditor = done.browser("auditor")
    text = auditor.http.get("/console/log?first=3").text
    page = done.installation.caller.http.get("/v1/log/entries?after=2&limit=3").json()
    whole = page["completeness"]["range"]
    for name, value in (
        ("start", "3"),
        ("end", "6"),
        ("start-root", whole["start"]["root"]),
        ("end-root", whole["end"]["root"]),
        ("own", " ".join(whole["consistency"]["range"])),
        ("onward", " ".join(whole["consistency"]["head"])),
        ("leaves", " ".join(one["leaf"] for one in page["items"])),
        ("note", page["checkpoint"]),
    ):
        assert f'data-{name}="{value}"' in text, name
    assert "range.mjs" in text
    assert (
        f"Entries 3 to 5 of a log of {page['tree_size']}."
        in read(auditor.http.get("/console/log?first=3")).text
    )
    filtered = auditor.http.get("/console/log?event=request.approved").text
    assert 'id="range"' not in filtered
    assert "cannot be proven" in filtered


def test_the_report_of_a_period_is_the_services_own(done: Desk) -> None:
    auditor = done.browser("auditor")
    assert 'name="from"' in auditor.http.get("/console/reports").text
    days = {"from": "2020-01-01", "to": "2099-12-31"}
    answer = auditor.http.get("/console/reports/period", params={**days, "format": "json"})
    assert answer.headers["content-disposition"].endswith('2020-01-01-2099-12-31.json"')
    token = {"authorization": f"Bearer {make_token(done.installation.services, 'auditor')}"}
    own = done.installation.caller.http.get(
        "/v1/reports/period", params=days, headers=token
    ).json()
    assert answer.json()["figures"] == own["figures"]
    assert own["figures"]["received"] == 3
    for form, start in (("csv", b""), ("html", b"<!doctype html>")):
        answer = auditor.http.get("/console/reports/period", params={**days, "format": form})
        assert answer.status_code == 200
        assert answer.content.startswith(start)
    wrong = {"from": "2026-02-02", "to": "2026-01-01", "format": "json"}
    assert auditor.http.get("/console/reports/period", params=wrong).status_code == 400
    wrong["from"] = "yesterday"
    assert auditor.http.get("/console/reports/period", params=wrong).status_code == 400


@pytest.mark.parametrize(
    ("today", "first", "last"),
    [
        (date(2026, 1, 31), date(2025, 12, 1), date(2025, 12, 31)),
        (date(2028, 3, 1), date(2028, 2, 1), date(2028, 2, 29)),
    ],
)
def test_the_last_month_is_offered(today: date, first: date, last: date) -> None:
    assert overview.last_month(today) == (first, last)


def test_each_page_is_read_in_each_language(done: Desk) -> None:
    officer = done.browser("operator")
    pages = [*PAGES, certificate(done, officer).removeprefix("/console")]
    for page in pages:
        for language in LANGUAGES:
            header = {"accept-language": language}
            text = officer.http.get(f"/console{page}", headers=header)
            assert text.status_code == 200, page
            assert f'<html lang="{language}">' in text.text
            read(text)


def test_a_part_that_does_not_work_is_named(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    officer = desk.browser()
    assert "The service is ready" in officer.get("/console/health").text

    def broken(_: Any) -> None:
        raise OSError("disk")

    monkeypatch.setattr("shutil.disk_usage", broken)
    desk.installation.services.seen.clear()
    page = officer.get("/console/health")
    assert "NOT ready" in page.text
    assert "Disk space" in page.text


def test_each_part_of_the_service_has_a_name() -> None:
    assert set(PARTS) <= words("en").sections["part"].keys()


def test_all_languages_have_the_same_texts() -> None:
    def places(text: Any) -> Any:
        many = text if isinstance(text, list) else [text]
        return len(many), [sorted(re.findall(r"\{\w+\}", one)) for one in many]

    shapes = [
        {
            (section, name): places(text)
            for section, texts in words(language).sections.items()
            for name, text in texts.items()
        }
        for language in LANGUAGES
    ]
    assert shapes[0] == shapes[1] == shapes[2]


def test_nobody_reads_a_page_without_signing_in(installation: Installation) -> None:
    nobody = Browser(installation.caller.http)
    open_to_all = {
        "consoleHome",
        "consoleSignInPage",
        "consoleSignIn",
        "consoleLanguage",
        "consoleFile",
        "consoleNowhere",
    }
    seen = 0
    for route in all_routes():
        if route.operation_id in open_to_all:
            continue
        address = route.path.replace("{", "").replace("}", "")
        (method,) = route.methods - {"HEAD"}
        answer = nobody.http.request(method, address)
        assert answer.url.path == "/console/sign-in", route.operation_id
        seen += 1
    assert seen > 15


def all_routes() -> list[Any]:
    parts = (entrance, opening, queue, cases, certificates, overview)
    return [route for part in parts for route in part.routes.routes]


def test_every_file_is_there_with_its_type(installation: Installation) -> None:
    nobody = Browser(installation.caller.http)
    for name, kind in entrance.STATIC.items():
        found = nobody.http.get(f"/console/static/{name}")
        assert found.headers["content-type"] == kind
        assert found.content
