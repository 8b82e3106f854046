"""Scripts in every field: each is text on the page, or refused, and never markup."""

from typing import Any

import pytest
from sqlmodel import Session, select

from app.service.access.tokens import mint
from models import ErasureRequest, Model
from tests.app.console.conftest import Desk
from tests.app.console.reader import Browser, read

SCRIPTS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
)


def harmless(page: Any, script: str) -> None:
    """Insist that a script is on no page but as text; `read` insists on the rest."""
    reader = read(page)
    assert "img" not in reader.tags
    assert not any(one.startswith("javascript:") for one in reader.links)
    assert all("src=x" not in one for one in reader.tags)
    if "<" in script:
        assert script not in page.text
    assert "49{" not in page.text


@pytest.mark.parametrize("script", SCRIPTS)
def test_notes_and_names_are_shown_as_text(desk: Desk, script: str) -> None:
    with Session(desk.installation.services.engine) as session:
        token = mint(session, "officer", f"{script}")
        session.commit()
    officer = Browser(desk.installation.caller.http, token)
    address = f"/console/cases/{desk.case}"
    noted = officer.send(address, f"{address}/note", text=script)
    assert noted.status_code == 200
    assert script in read(noted).text
    harmless(noted, script)
    assigned = officer.send(address, f"{address}/assign", to=script)
    harmless(assigned, script)
    harmless(officer.http.get("/console"), script)


@pytest.mark.parametrize("script", SCRIPTS)
def test_fields_and_filters_never_come_back_as_markup(desk: Desk, script: str) -> None:
    officer, address = desk.browser(), f"/console/cases/{desk.case}"
    for name in ("refuse", "extend", "pause"):
        answer = officer.send(f"{address}/{name}", f"{address}/{name}", reason=script)
        assert answer.status_code == 422
        harmless(answer, script)
    for field in (
        "kind",
        "value",
        "requester",
        "state",
        "model",
        "overdue",
        "due_within",
        "sha256",
    ):
        answer = officer.send("/console/search", "/console/search", None, **{field: script})
        harmless(answer, script)
    for page in (
        "",
        "/log",
        "/models",
        "/audits",
        "/reports",
        "/sign-in",
        "/models/small",
        "/log/0",
    ):
        for name in ("state", "model", "after", "ref", "event", "first", "next", "due_within"):
            harmless(officer.http.get(f"/console{page}", params={name: script}), script)
    for page in ("cases", "models", "log", "audits", "certificates", "static", "x"):
        harmless(officer.http.get(f"/console/{page}/{script}"), script)
    with desk.installation.services.reading() as session:
        states = {one.state for one in session.exec(select(ErasureRequest))}
    assert states == {"awaiting-review"}


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_a_model_says_is_text(desk: Desk, script: str) -> None:
    with Session(desk.installation.services.engine) as session:
        model = session.exec(select(Model)).one()
        model.classes, model.failure, model.method = [script, "b"], script, script
        session.add(model)
        session.commit()
    for page in ("/models", "/models/small"):
        harmless(desk.browser().http.get(f"/console{page}"), script)


def test_what_is_invisible_does_not_act_on_the_page(desk: Desk) -> None:
    hidden, shown = "A\u202ebcd\u009b\u200b\u00a0e\u2028", "A\ufffdbcd\ufffd\ufffd\u00a0e\ufffd"
    officer, address = desk.browser(), f"/console/cases/{desk.case}"
    assert shown in officer.send(address, f"{address}/note", text=f"{hidden}.").text
    place, reason = "/console/holds/place", f"{hidden}."
    assert shown in officer.send(place, place, ref=desk.case, reason=reason).text
    with Session(desk.installation.services.engine) as session:
        model = session.exec(select(Model)).one()
        model.classes = [hidden, "b"]
        session.add(model)
        session.commit()
    pages = [officer.http.get(page).text for page in (address, "/console/models/small")]
    assert all(shown in page and "\u202e" not in page for page in pages)


def test_a_planted_template_error_is_seen(desk: Desk) -> None:
    """What these tests would say of a page that does not escape."""

    class Page:
        text = f"<html><body>{SCRIPTS[0]}{SCRIPTS[1]}</body></html>"
        headers = desk.browser().http.get("/console").headers

    with pytest.raises(AssertionError):
        harmless(Page(), SCRIPTS[0])
