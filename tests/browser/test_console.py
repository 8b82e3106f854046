"""The console in a browser: axe on every page, htmx, proofs checked by the page, no JavaScript."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import pytest
import uvicorn
from sqlmodel import Session

from app.ledger.startup import init_log
from app.main import create_app
from app.service.access.tokens import mint
from app.settings import Settings
from models.database.session import make_engine
from tests.app.console.provider import CLIENT, SECRET, provider
from tests.browser import accessible
from tests.browser.chromium import DRIVEN
from tests.installation import Installation, install
from tests.workers.jobs.desk.test_cases import person
from tests.workers.jobs.desk.test_people import ANN, BOB, EVE, named

pytestmark = DRIVEN

PHONE, DESK = {"width": 360, "height": 800}, {"width": 1280, "height": 900}


@dataclass
class Office:
    """A served installation: the address, tokens by scope, a case that waits and one that ended."""

    address: str
    tokens: dict[str, str]
    waiting: str
    answered: str
    installation: Installation
    holds: tuple[str, ...]


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Office]:
    directory = tmp_path_factory.mktemp("console")
    shutil.copyfile(sqlite_template, directory / "lethe.db")
    (directory / "data").mkdir(mode=0o700)
    url = f"sqlite:///{directory / 'lethe.db'}"
    settings = Settings(
        database_url=url, data_dir=directory / "data", origin="console.test/log"
    )
    engine = make_engine(url)
    init_log(settings, engine)
    engine.dispose()
    with install(settings) as installation:
        caller = installation.caller
        assert caller.register_key().status_code == 201
        rows = named(r99=EVE)
        assert caller.register_model(rows, decide="review").status_code == 201
        installation.drain()
        refs = []
        for email in (ANN, BOB):
            body = {"person": person(email), "ticket": "T-1", "contact": "by post"}
            refs.append(caller.operator("POST", "/v1/cases", json=body).json()["ref"])
        tokens = {}
        with Session(installation.services.engine) as session:
            for scope in ("operator", "officer", "auditor"):
                tokens[scope] = mint(session, scope, f"{scope} of the test")
            session.commit()
        header = {"authorization": f"Bearer {tokens['officer']}"}
        approved = caller.http.post(f"/v1/cases/{refs[0]}/approve", headers=header)
        assert approved.status_code == 200, approved.text
        installation.drain()
        held = caller.operator(
            "POST", "/v1/holds", json={"ref": "small", "reason": "a lawsuit"}
        )
        assert held.status_code == 201, held.text
        holds = (held.json()["id"],)
        with serving(caller.http.app) as address:
            yield Office(address, tokens, refs[1], refs[0], installation, holds)


@contextmanager
def serving(app: Any) -> Iterator[str]:
    config = uvicorn.Config(app, port=0, lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = Thread(target=server.run)
    thread.start()
    try:
        deadline = monotonic() + 20
        while not server.started and monotonic() < deadline:
            sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


Enter = Callable[..., Any]


@pytest.fixture
def enter(browser: Any, office: Office) -> Iterator[Enter]:
    """Sign somebody in; what a page reports as wrong fails the test."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def sign_in(scope: str = "officer", **how: Any) -> Any:
        context = browser.new_context(**{"locale": "en-US", "viewport": DESK, **how})
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.goto(f"{office.address}/")
        tab.fill("#token", office.tokens[scope])
        tab.click("main button")
        tab.wait_for_url("**/console")
        return tab

    yield sign_in
    for context in contexts:
        context.close()
    assert wrong == []


def pages(tab: Any, office: Office) -> list[str]:
    """Return the address of each kind of page."""
    case = f"/console/cases/{office.answered}"
    tab.goto(office.address + case)
    certificate = tab.locator("tbody a[href*=certificates]").get_attribute("href")
    waiting = f"/console/cases/{office.waiting}"
    own = [f"{waiting}/{name}" for name in ("approve", "refuse", "extend", "pause", "contact")]
    rest = [
        "",
        "/open",
        "/search",
        "/holds",
        f"/holds/place?ref={office.waiting}",
        *(f"/holds/{one}/release" for one in office.holds),
        "/models",
        "/models/small",
        "/log",
        "/log/3",
        "/audits",
        "/reports",
        "/health",
    ]
    return [
        case,
        f"{case}/close",
        waiting,
        *own,
        certificate,
        *(f"/console{one}" for one in rest),
    ]


@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_axe_finds_nothing(office: Office, enter: Enter, viewport: dict[str, int]) -> None:
    # The check itself is a script that the pages' policy would forbid.
    tab = enter(viewport=viewport, bypass_csp=True)
    for address in ["/console/sign-in", *pages(tab, office)]:
        tab.goto(office.address + address)
        accessible.check(tab)


def test_filters_change_the_list_without_a_reload(office: Office, enter: Enter) -> None:
    tab = enter()
    tab.evaluate("window.kept = true")
    assert tab.locator("tbody tr").count() >= 2
    tab.select_option("#state", "certified")
    tab.wait_for_url("**state=certified**")
    tab.wait_for_function("() => document.querySelectorAll('#found tbody tr').length === 1")
    assert tab.evaluate("window.kept") is True
    tab.reload()
    assert tab.input_value("#state") == "certified"
    assert tab.locator("tbody tr").count() == 1


def test_the_browser_checks_the_proof(office: Office, enter: Enter) -> None:
    tab = enter("auditor")
    tab.goto(f"{office.address}/console/log/3")
    tab.wait_for_selector("#verdict.good")
    assert "Checked in this browser" in tab.inner_text("#verdict")
    good = tab.input_value("#vkey")
    tab.fill("#vkey", good[:-4] + "AAAA")
    tab.wait_for_selector("#verdict.bad")
    assert "NOT confirmed" in tab.inner_text("#verdict")
    tab.fill("#vkey", good)
    tab.wait_for_selector("#verdict.good")
    for change in (
        "p.dataset.leaf = btoa(atob(p.dataset.leaf).replace('model', 'nodel'))",
        "p.dataset.index = '2'",
        "p.dataset.hashes = p.dataset.hashes.split(' ').reverse().join(' ')",
        "p.dataset.size = '2'",
    ):
        tab.reload()
        tab.wait_for_selector("#verdict.good")
        tab.evaluate(f"(() => {{ const p = document.getElementById('proof'); {change}; }})()")
        tab.fill("#vkey", good + " ")
        tab.wait_for_selector("#verdict.bad")


def test_the_browser_checks_that_a_page_of_the_log_is_complete(
    office: Office, enter: Enter
) -> None:
    tab = enter("auditor")
    tab.goto(f"{office.address}/console/log?first=3")
    tab.wait_for_selector("#verdict.good")
    assert "these are all entries from 3 to" in tab.inner_text("#verdict")
    wide = "document.querySelector('#vkey').offsetWidth / document.querySelector('#range').offsetWidth"
    assert tab.evaluate(wide) > 0.9  # a key can be pasted and read
    good = tab.input_value("#vkey")
    tab.fill("#vkey", good[:-4] + "AAAA")
    tab.wait_for_selector("#verdict.bad")
    for change in (
        "p.dataset.leaves = p.dataset.leaves.split(' ').slice(1).join(' ')",
        "p.dataset.leaves = p.dataset.leaves.split(' ').reverse().join(' ')",
        "p.dataset.start = '4'",
        "p.dataset.onward = p.dataset.own",
    ):
        tab.reload()
        tab.wait_for_selector("#verdict.good")
        tab.evaluate(f"(() => {{ const p = document.getElementById('range'); {change}; }})()")
        tab.fill("#vkey", good + " ")
        tab.wait_for_selector("#verdict.bad")
    # A filter's answer has no such proof, and says so; without the filter it is checked again.
    tab.reload()
    tab.select_option("#event", "request.received")
    tab.wait_for_selector("#unprovable")
    tab.select_option("#event", "")
    tab.wait_for_selector("#verdict.good")


def test_everything_is_read_and_decided_without_javascript(
    office: Office, enter: Enter
) -> None:
    tab = enter(java_script_enabled=False, locale="de-DE")
    tab.select_option("#state", "awaiting-review")
    tab.click("main form button")
    tab.locator("tbody a").first.click()
    tab.click("text=Anhalten…")
    tab.check("#reason-identity")
    tab.click("main form button")
    assert "Angehalten" in tab.inner_text("main")
    tab.click("button:has-text('Fortsetzen')")
    assert "Wartet auf Prüfung" in tab.inner_text("main")
    tab.click("button:has-text('Français')")
    assert tab.get_attribute("html", "lang") == "fr"
    tab.goto(f"{office.address}/console/log/3")
    assert "lethe log verify" in tab.inner_text("main")
    for address in pages(tab, office):
        tab.goto(office.address + address)
        assert tab.locator("h1").count() == 1, address
    tab.click("button:has-text('Se déconnecter')")
    tab.wait_for_url("**/console/sign-in")


def test_another_site_sends_no_form(office: Office, browser: Any) -> None:
    context = browser.new_context(locale="en-US")
    tab = context.new_page()
    tab.goto(f"{office.address}/")
    tab.fill("#token", office.tokens["officer"])
    tab.click("main button")
    tab.wait_for_url("**/console")
    address = f"{office.address}/console/cases/{office.waiting}/note"
    evil = context.new_page()
    evil.route(
        "http://evil.example/",
        lambda route: route.fulfill(
            content_type="text/html",
            body=f'<form method="post" action="{address}"><input name="text" value="evil"></form>',
        ),
    )
    evil.goto("http://evil.example/")
    evil.evaluate("document.forms[0].submit()")
    evil.wait_for_url(f"{office.address}/**")
    assert "/sign-in" in evil.url  # the cookie was not even sent
    tab.goto(f"{office.address}/console/cases/{office.waiting}")
    assert "evil" not in tab.inner_text("main")
    # Nor is a page of the console shown in a frame of another site.
    evil.goto("http://evil.example/")
    evil.evaluate(
        f"document.body.innerHTML = '<iframe src=\"{office.address}/console\"></iframe>'"
    )
    evil.wait_for_timeout(500)
    frames = [one.url for one in evil.frames if one is not evil.main_frame]
    assert not any(one.startswith(office.address) for one in frames)
    context.close()


def test_the_session_of_oidc_survives_the_way_back_from_another_site(
    office: Office, browser: Any
) -> None:
    with provider() as made:
        made.issuer = made.issuer.replace("127.0.0.1", "localhost")  # another site for browsers
        changes = {
            "oidc_issuer": made.issuer,
            "oidc_client_id": CLIENT,
            "oidc_client_secret": SECRET,
            "oidc_roles": "officer=dpo",
        }
        services = office.installation.services
        settings = Settings(**{**services.settings.model_dump(), **changes})
        with serving(create_app(replace(services, settings=settings))) as address:
            context = browser.new_context(locale="en-US")
            tab = context.new_page()
            tab.goto(f"{address}/console/cases/{office.waiting}")
            tab.click("text=Sign in with your organisation's account")
            tab.wait_for_url(f"**/console/cases/{office.waiting}")
            assert "sso:u-17" in tab.inner_text("header")
            assert tab.locator("text=Approve…").count() == 1
            cookies = {one["name"]: one for one in context.cookies()}
            assert cookies["lethe-console"]["sameSite"] == "Strict"
            assert cookies["lethe-console"]["httpOnly"]
            assert "lethe-oidc" not in cookies
            context.close()
