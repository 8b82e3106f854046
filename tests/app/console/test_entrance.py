"""Sign in and out, forms that were not sent from their page, and the headers of every page."""

from datetime import timedelta
from html import unescape

import pytest
from httpx2 import Response
from sqlmodel import Session, select

from app.api.http.attempts import Bound, Limits
from app.console import session as sessions
from app.console.forms import MOST_BYTES
from app.counters import REFUSED
from app.service.access.tokens import revoke_named
from models import UsedNonce
from tests.app.console.conftest import Desk
from tests.app.console.reader import read
from tests.installation import Installation, make_token


def test_people_are_sent_to_the_console_and_sign_in(desk: Desk) -> None:
    nobody = desk.browser(None)
    start = nobody.http.get("/")
    assert start.url.path == "/console/sign-in"
    address = f"/console/cases/{desk.case}"
    asked = nobody.http.get(address)
    form = read(asked).form("/console/sign-in")
    assert form.fields["next"] == address
    token = make_token(desk.installation.services, "officer")
    inside = nobody.post(form.action, {**form.fields, "token": token})
    assert inside.url.path == address
    cookie = inside.history[0].headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert token not in cookie
    assert "Secure" not in cookie  # the public URL is not https


def test_no_foreign_page_follows_the_sign_in(desk: Desk) -> None:
    token = make_token(desk.installation.services, "officer")
    for wrong in (
        "https://evil.example",
        "//evil.example",
        "/console//evil",
        "/v1/keys",
        "/console/../x",
    ):
        nobody = desk.browser(None)
        page = nobody.send("/console/sign-in", "/console/sign-in", token=token, next=wrong)
        assert page.url.path == "/console"


@pytest.mark.parametrize("token", ["", "lethe_officer_x", "x" * 300, "a\tb", "Bearer", "ü<b>"])
def test_a_wrong_token_signs_nobody_in(desk: Desk, token: str) -> None:
    nobody = desk.browser(None)
    page = nobody.send("/console/sign-in", "/console/sign-in", token=token)
    assert page.status_code == 401
    assert "unknown or was revoked" in read(page).text
    assert nobody.http.get("/console").url.path == "/console/sign-in"


def test_a_client_that_fails_too_often_waits(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a right token: whoever guesses must not learn that they guessed it."""
    now = [0.0]
    desk.installation.caller.http.app.state.sign_ins = Limits(lambda: now[0])  # type: ignore[attr-defined]
    monkeypatch.setattr("app.console.session.FAILED", Bound("failed sign-ins", 2, 900.0))
    token = make_token(desk.installation.services, "officer")
    nobody, counted = desk.browser(None), REFUSED.read().get("too-many-attempts", 0)

    def tried(token: str) -> Response:
        return nobody.send("/console/sign-in", "/console/sign-in", token=token)

    assert [tried("x").status_code for _ in range(2)] == [401, 401]
    now[0] = 1.0
    for wrong in ("x", token):
        page = tried(wrong)
        assert page.status_code == 429
        assert int(page.headers["retry-after"]) == 899
        assert "Try again in 15 min." in read(page).text
    assert nobody.http.get("/console").url.path == "/console/sign-in"
    assert REFUSED.read()["too-many-attempts"] == counted + 2
    now[0] = 901.0
    assert tried(token).url.path == "/console"


def test_who_signs_in_is_not_counted(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.console.session.FAILED", Bound("failed sign-ins", 1, 900.0))
    for _ in range(3):
        desk.browser()


def test_signing_out_ends_the_session_wherever_its_cookie_is(desk: Desk) -> None:
    officer = desk.browser()
    name = sessions.cookie_name(desk.installation.services)
    copied = officer.http.cookies[name]
    out = officer.send("/console", "/console/sign-out")
    assert out.url.path == "/console/sign-in"
    assert officer.http.get("/console").url.path == "/console/sign-in"
    thief = desk.browser(None)
    thief.http.cookies.set(name, copied)
    assert thief.http.get("/console").url.path == "/console/sign-in"


def test_a_revoked_token_ends_its_sessions(desk: Desk) -> None:
    officer = desk.browser()
    shown = officer.http.get("/console").text
    name = unescape(shown.split("<span>")[1].split(" <span")[0])
    with Session(desk.installation.services.engine) as session:
        revoke_named(session, name)
        session.commit()
    assert officer.http.get("/console").url.path == "/console/sign-in"


@pytest.mark.parametrize("limit", ["IDLE", "LONGEST"])
def test_a_session_ends_by_itself(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    officer = desk.browser()
    officer.get("/console")
    monkeypatch.setattr(sessions, limit, timedelta(seconds=-1))
    assert officer.http.get("/console").url.path == "/console/sign-in"


def test_a_page_moves_the_idle_end(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    officer = desk.browser()
    name = sessions.cookie_name(desk.installation.services)
    first = officer.http.cookies[name]
    officer.get("/console")
    assert officer.http.cookies[name] == first
    monkeypatch.setattr(sessions, "AGAIN", timedelta(seconds=-1))
    officer.get("/console")
    assert officer.http.cookies[name] != first


def test_a_changed_cookie_is_nobodys(desk: Desk) -> None:
    officer = desk.browser()
    name = sessions.cookie_name(desk.installation.services)
    good = officer.http.cookies[name]
    first = "B" if good[0] == "A" else "A"  # its first byte is random
    for wrong in ("", "x", good[:-4] + "AAAA", first + good[1:], good + "AAAA", "é"):
        browser = desk.browser(None)
        page = browser.http.get("/console", headers={b"cookie": f"{name}={wrong}".encode()})
        assert page.url.path == "/console/sign-in"


def flipped(token: str) -> str:
    """Return a token whose last digit is another one."""
    return token[:-1] + ("1" if token[-1] == "0" else "0")


def test_a_form_is_taken_once_from_its_own_page(desk: Desk) -> None:
    officer, address = desk.browser(), f"/console/cases/{desk.case}"
    action = f"{address}/note"
    form = officer.get(address).form(action)
    fields = {**form.fields, "text": "only once"}
    refused = {
        "cross-site": {"sec-fetch-site": "cross-site"},
        "same site, other origin": {"sec-fetch-site": "same-site"},
        "foreign origin": {"origin": "https://evil.example"},
        "no origin": {"origin": "null"},
        "other type": {"content-type": "text/plain"},
    }
    for name, headers in refused.items():
        page = officer.post(action, fields, headers)
        assert page.status_code == 403, name
        assert "form-refused" in read(page).text
    other = desk.browser()
    for name, sent in {
        "without a token": {"text": "x"},
        "of another form": {
            **officer.get(address).form("/console/sign-out").fields,
            "text": "x",
        },
        "of another session": {**other.get(address).form(action).fields, "text": "x"},
        "changed": {**fields, "form_token": flipped(fields["form_token"])},
        "later": {**fields, "form_token": f"9{fields['form_token']}"},
        "no number": {**fields, "form_token": "x.y.z"},
    }.items():
        assert officer.post(action, sent).status_code == 403, name
    assert "only once" not in officer.http.get(address).text
    assert officer.post(action, fields).status_code == 200
    again = officer.post(action, fields)
    assert again.status_code == 403
    assert "sent before" in read(again).text
    assert officer.http.get(address).text.count("only once") == 1


def test_a_stranger_who_sends_forms_makes_no_rows(desk: Desk) -> None:
    nobody = desk.browser(None)
    fields = {**nobody.get("/console/sign-in").form("/console/sign-in").fields, "token": "x"}
    before = nonces(desk)
    for _ in range(3):
        assert nobody.post("/console/sign-in", fields).status_code == 401
    assert nonces(desk) == before
    officer = desk.browser()
    case = f"/console/cases/{desk.case}"
    assert officer.send(case, f"{case}/note", text="seen").status_code == 200
    assert nonces(desk) > before


def nonces(desk: Desk) -> int:
    with desk.installation.services.reading() as session:
        return len(session.exec(select(UsedNonce)).all())


def test_huge_and_odd_forms_are_refused(desk: Desk) -> None:
    officer, address = desk.browser(), f"/console/cases/{desk.case}"
    action = f"{address}/note"
    form = officer.get(address).form(action)
    huge = officer.post(action, {**form.fields, "text": "x" * MOST_BYTES})
    assert huge.status_code == 413
    many = officer.post(action, {**form.fields, **{f"f{n}": "" for n in range(200)}})
    assert many.status_code == 403
    own = {"content-type": "application/x-www-form-urlencoded"}
    for body in (b"text=%ff", b"text=a&text=b", b"\xff"):
        page = officer.http.post(action, content=body, headers=own)
        assert page.status_code == 403
        read(page)
    long = officer.post(action, {**form.fields, "text": "x" * 501})
    assert long.status_code == 422
    form = officer.get(address).form(action)
    assert officer.post(action, {**form.fields, "text": "a\x00b"}).status_code == 422
    assert "Note added" not in officer.get(address).text


def test_a_form_that_is_too_old_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    officer, address = desk.browser(), f"/console/cases/{desk.case}"
    monkeypatch.setattr("app.console.forms.LIFE", timedelta(seconds=-1))
    page = officer.send(address, f"{address}/note", text="late")
    assert page.status_code == 403
    assert "too old" in read(page).text


def test_every_answer_has_the_headers(desk: Desk) -> None:
    officer = desk.browser()
    for address in (
        "/console",
        "/console/nowhere",
        "/console/sign-in",
        "/console/static/console.css",
    ):
        headers = officer.http.get(address).headers
        assert headers["content-security-policy"].startswith(
            "default-src 'none'; script-src 'self'"
        )
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
    assert officer.http.get("/console").headers["cache-control"] == "no-store"
    assert officer.http.get("/console/static/..%2fsession.py").status_code == 404
    assert officer.http.get("/console/static/session.py").status_code == 404


def test_over_tls_the_cookies_are_bound_to_the_host(installation: Installation) -> None:
    from dataclasses import replace

    settings = installation.settings.model_copy(update={"public_url": "https://lethe.example"})
    services = replace(installation.services, settings=settings)
    assert sessions.cookie_name(services) == "__Host-lethe-console"
    from fastapi import Response

    response = Response()
    sessions.write_cookie(services, response, sessions.begin("ann", "officer"))
    cookie = response.headers["set-cookie"]
    assert "Secure" in cookie
    assert "Path=/" in cookie
