"""Sign-in at a real OpenID Connect provider, and everything that it can answer wrong."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc.jwk import ECKey
from sqlmodel import Session
from starlette.testclient import TestClient

from app.api.http.attempts import Bound
from app.console import session
from app.console.sign_in import oidc, provider
from app.main import create_app
from app.problems import OidcMissingError, SignInError, TokenNameError
from app.service.access.tokens import mint
from app.settings import Settings, SettingsError
from models import UsedNonce
from tests.app.console.conftest import Desk
from tests.app.console.provider import CLIENT, SECRET, Provider, signed_by_secret, unsigned
from tests.app.console.provider import provider as serving
from tests.app.console.reader import Browser, read

CONFIGURED = {
    "oidc_client_id": CLIENT,
    "oidc_client_secret": SECRET,
    "oidc_roles": "operator=admins,officer=dpo,auditor=audit",
}


@dataclass
class Joined:
    """A console that signs people in at a provider."""

    desk: Desk
    provider: Provider
    http: TestClient
    outside: httpx2.Client

    def browser(self) -> Browser:
        return Browser(self.http)

    def answered(self, browser: Browser, address: str = "/console/oidc") -> str:
        """Start a sign-in; return the address that the provider sends the browser back to."""
        sent = browser.http.get(address, follow_redirects=False)
        assert sent.status_code == 303, sent.text
        assert "SameSite=lax" in sent.headers["set-cookie"]
        back = self.outside.get(sent.headers["location"])
        assert back.status_code == 302
        return back.headers["location"]

    def signed_in(self, browser: Browser, address: str = "/console/oidc") -> Any:
        return browser.http.get(self.answered(browser, address))


@pytest.fixture
def joined(desk: Desk) -> Iterator[Joined]:
    with serving() as made:
        changes = {**CONFIGURED, "oidc_issuer": made.issuer}
        own = desk.installation.settings.model_dump()
        settings = Settings(**{**own, **changes})
        services = replace(desk.installation.services, settings=settings)
        app = create_app(services)
        # As `install`: compiled routes hold nothing of an installation.
        app.router.routes[:] = desk.installation.caller.http.app.router.routes  # type: ignore[attr-defined]
        with httpx2.Client() as outside:
            yield Joined(desk, made, TestClient(app), outside)


def test_a_person_signs_in_and_decides(joined: Joined) -> None:
    browser, case = joined.browser(), f"/console/cases/{joined.desk.case}"
    page = browser.get("/console/sign-in")
    assert any(one.startswith("/console/oidc?next=") for one in page.links)
    done = joined.signed_in(browser, f"/console/oidc?next={case}")
    assert done.status_code == 200, done.text
    assert case in read(done).links
    assert "SameSite=strict" in done.headers["set-cookie"]
    shown = browser.get(case)
    assert "sso:u-17" in shown.text
    assert "maria@example.org" not in shown.text
    approved = browser.send(f"{case}/approve", f"{case}/approve")
    assert "Approved" in read(approved).text
    assert read(approved).text.count("sso:u-17") >= 2
    assigned = browser.send(case, f"{case}/note", text="seen")
    assert assigned.status_code == 200
    joined.desk.installation.drain()
    joined.desk.installation.check()


def test_groups_give_roles(joined: Joined) -> None:
    groups: list[tuple[Any, str | None]] = [
        (["audit"], "auditor"),
        ("dpo", "officer"),
        (["audit", "admins", "dpo"], "operator"),
        (["others"], None),
        ([], None),
        (None, None),
    ]
    for given, role in groups:
        joined.provider.claims["groups"] = given
        browser = joined.browser()
        done = joined.signed_in(browser)
        assert done.status_code == (403 if role is None else 200)
        if role is None:
            assert "none of your groups" in read(done).text
            assert browser.http.get("/console").url.path == "/console/sign-in"
        else:
            assert f"({role})" in browser.get("/console").text


def _set(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda claims: claims.update({name: value})


WRONG: dict[str, dict[str, Any]] = {
    "other audience": {"change": _set("aud", "another-client")},
    "other audience, for us": {"change": lambda c: c.update(aud="other", azp=CLIENT)},
    "two audiences, for another": {"change": lambda c: c.update(aud=[CLIENT, "x"], azp="x")},
    "no audience": {"change": lambda c: c.pop("aud")},
    "other issuer": {"change": _set("iss", "https://evil.example")},
    "expired": {"change": _set("exp", 1_600_000_000)},
    "no end": {"change": lambda c: c.pop("exp")},
    "issued tomorrow": {
        "change": lambda c: c.update(iat=c["iat"] + 86_400, nbf=c["iat"] + 86_400)
    },
    "other nonce": {"change": _set("nonce", "x")},
    "no nonce": {"change": lambda c: c.pop("nonce")},
    "other access token": {"change": _set("at_hash", "AAAA")},
    "no name": {"change": lambda c: c.pop("sub")},
    "name of no text": {"change": _set("sub", 17)},
    "name too long": {"change": _set("sub", "x" * 81)},
    "name with a control": {"change": _set("sub", "a\x00b")},
    "another key": {"sign": lambda p, c: p.signed(c, ECKey.generate_key("P-256"))},
    "the client's secret": {"sign": signed_by_secret},
    "not signed": {"sign": unsigned},
    "changed": {"sign": lambda p, c: p.signed(c)[:-6] + "AAAAAA"},
    "no token": {"sign": lambda p, c: ""},
    "nonsense": {"sign": lambda p, c: "a.b.c"},
}


def test_a_wrong_answer_signs_nobody_in(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.console.session.FAILED", Bound("failed sign-ins", 1000))
    made = vars(joined.provider).copy()
    for name, changes in WRONG.items():
        vars(joined.provider).update(made | changes)
        browser = joined.browser()
        done = joined.signed_in(browser)
        assert done.status_code == 403, name
        assert "sign-in-refused" in read(done).text, name
        assert browser.http.get("/console").url.path == "/console/sign-in", name
    vars(joined.provider).update(made)
    assert joined.signed_in(joined.browser()).status_code == 200


def test_an_answer_is_for_the_browser_that_asked_once(joined: Joined) -> None:
    browser = joined.browser()
    back = joined.answered(browser)
    other = joined.browser()
    assert other.http.get(back).status_code == 403
    assert joined.answered(other) != back
    assert other.http.get(back).status_code == 403  # its own sign-in has another state
    for change in (
        {"state": "x"},
        {"state": ""},
        {"code": ""},
        {"iss": "https://evil.example"},
    ):
        fresh = joined.browser()
        sent = {
            name: one[0]
            for name, one in parse_qs(urlsplit(joined.answered(fresh)).query).items()
        }
        assert (
            fresh.http.get("/console/oidc/callback", params={**sent, **change}).status_code
            == 403
        )
    joined.provider.careless = True  # then it is only ourselves who remember
    kept = dict(browser.http.cookies)
    assert browser.http.get(back).status_code == 200
    again = joined.browser()
    for name, value in kept.items():
        again.http.cookies.set(name, value)
    assert again.http.get(back).status_code == 403


def test_a_code_without_its_verifier_is_worth_nothing(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = joined.browser()
    back = joined.answered(browser)
    query = {name: one[0] for name, one in parse_qs(urlsplit(back).query).items()}
    stolen = joined.browser()
    mine = {
        name: one[0] for name, one in parse_qs(urlsplit(joined.answered(stolen)).query).items()
    }
    crossed = {**mine, "code": query["code"]}
    assert stolen.http.get("/console/oidc/callback", params=crossed).status_code == 403
    late = joined.browser()
    back = joined.answered(late)
    monkeypatch.setattr(oidc, "datetime", _Later)
    assert "too long" in late.http.get(back).text


class _Later(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return super().now(tz) + timedelta(hours=1)


def test_a_provider_that_is_down_or_another_is_said(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "FRESH_S", -1.0)
    monkeypatch.setattr(provider, "AWAY_S", -1.0)
    browser = joined.browser()
    for change in (
        {"issuer": "https://evil.example"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": ""},
    ):
        joined.provider.metadata = change
        refused = browser.http.get("/console/oidc", follow_redirects=False)
        assert refused.status_code == 403
        assert "sign-in-refused" in read(refused).text
    joined.provider.metadata = {"jwks_uri": f"{joined.provider.issuer}/none"}
    assert joined.signed_in(browser).status_code == 403


def test_the_provider_is_not_asked_for_each_sign_in(joined: Joined) -> None:
    for _ in range(5):
        joined.answered(joined.browser())
    assert joined.provider.asked.count("/.well-known/openid-configuration") == 1


def test_nobody_waits_for_a_provider_that_is_away(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger who starts sign-ins would hold a thread of all routes for each."""
    asked = threading.Event(), threading.Event()

    def hang(_: str) -> Any:
        asked[0].set()
        assert asked[1].wait(30)
        raise SignInError(provider.AWAY)

    monkeypatch.setattr(provider, "fetch", hang)
    settings = joined.http.app.state.services.settings  # type: ignore[attr-defined]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(provider.metadata, settings)
        assert asked[0].wait(30)
        with pytest.raises(SignInError, match="does not answer"):
            provider.metadata(settings)  # while the other one still waits
        asked[1].set()
        with pytest.raises(SignInError, match="does not answer"):
            first.result()
    monkeypatch.setattr(provider, "fetch", lambda _: pytest.fail("asked again at once"))
    with pytest.raises(SignInError, match="does not answer"):
        provider.metadata(settings)


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/token", "/jwks"])
def test_a_provider_that_answers_byte_by_byte_is_given_up(
    joined: Joined, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(provider, "WHOLE_S", 0.5)
    browser, joined.provider.slow = joined.browser(), path
    first = browser.http.get("/console/oidc", follow_redirects=False)
    if first.status_code == 303:
        back = joined.outside.get(first.headers["location"]).headers["location"]
        first = browser.http.get(back)
    assert first.status_code == 403
    assert "does not answer" in first.text


def test_strangers_with_codes_of_their_own_hold_few_threads_while_the_provider_hangs(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "places", threading.BoundedSemaphore(1))
    joined.provider.hold = threading.Event()
    waiting, other = joined.browser(), joined.browser()
    answers = joined.answered(waiting), joined.answered(other)
    with ThreadPoolExecutor(1) as pool:
        try:
            first = pool.submit(waiting.http.get, answers[0])
            while "/token" not in joined.provider.asked and not first.done():
                time.sleep(0.01)
            refused = other.http.get(answers[1])
        finally:
            joined.provider.hold.set()
        assert first.result().status_code == 200
    assert refused.status_code == 403
    assert "does not answer" in refused.text
    assert joined.provider.asked.count("/token") == 1
    assert other.http.get(answers[1]).status_code == 200  # the code was not spent


def test_json_that_nests_too_deeply_signs_nobody_in(
    joined: Joined,
) -> None:
    joined.provider.raw = b"[" * 100_000
    assert joined.browser().http.get("/console/oidc").status_code == 403


def test_strangers_who_start_sign_ins_make_no_rows(joined: Joined) -> None:
    browser = joined.browser()
    state = parse_qs(urlsplit(joined.answered(browser)).query)["state"][0]
    wrong = {"state": state, "error": "access_denied"}
    assert browser.http.get("/console/oidc/callback", params=wrong).status_code == 403
    with joined.desk.installation.services.reading() as reading:
        assert reading.get(UsedNonce, (oidc.STARTED, state)) is None


def test_sign_ins_that_fail_at_the_provider_are_limited(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.console.session.FAILED", Bound("failed sign-ins", 2, 900.0))
    browser = joined.browser()
    for _ in range(2):
        good = joined.answered(browser)
        assert browser.http.get(f"{good}&error=access_denied").status_code == 403
    asked = len(joined.provider.asked)
    page = browser.http.get(good)
    assert page.status_code == 429
    assert "too-many-attempts" in read(page).text
    assert 0 < int(page.headers["retry-after"]) <= 900
    assert len(joined.provider.asked) == asked  # its code was not redeemed


def test_a_session_ends_where_its_provider_is_no_longer_used(joined: Joined) -> None:
    browser = joined.browser()
    joined.signed_in(browser)
    assert browser.http.get("/console").url.path == "/console"
    application = joined.http.app
    services = application.state.services  # type: ignore[attr-defined]
    for issuer in ("", "https://another.example"):
        settings = services.settings.model_copy(update={"oidc_issuer": issuer})
        application.state.services = replace(services, settings=settings)  # type: ignore[attr-defined]
        assert browser.http.get("/console").url.path == "/console/sign-in"


def test_without_a_provider_there_is_no_such_sign_in(
    desk: Desk, joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = desk.browser(None)
    assert nobody.http.get("/console/oidc").status_code == 501
    assert not any("/oidc" in one for one in nobody.get("/console/sign-in").links)
    monkeypatch.setitem(__import__("sys").modules, "authlib.integrations.httpx_client", None)
    missing = joined.browser().http.get("/console/oidc")
    assert missing.status_code == 501
    assert ".[oidc]" in missing.text
    services = joined.http.app.state.services  # type: ignore[attr-defined]
    with pytest.raises(OidcMissingError, match="LETHE_OIDC_ISSUER"):  # nor does it start
        create_app(services)


def test_the_session_is_shorter_and_ends(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = joined.browser()
    joined.signed_in(browser)
    assert browser.http.get("/console").url.path == "/console"
    monkeypatch.setattr(session, "LONGEST_OIDC", timedelta(seconds=-1))
    assert browser.http.get("/console").url.path == "/console/sign-in"


def test_the_same_name_approves_nothing_it_submitted_with_a_token(joined: Joined) -> None:
    case = f"/console/cases/{joined.desk.case}"
    shown = joined.desk.installation.caller.operator(
        "GET", f"/v1/cases/{joined.desk.case}"
    ).json()
    joined.provider.claims["sub"] = shown["opened_by"].upper()
    browser = joined.browser()
    joined.signed_in(browser)
    refused = browser.send(f"{case}/approve", f"{case}/approve")
    assert refused.status_code == 403
    assert "their own submission" in read(refused).text
    engine = joined.desk.installation.services.engine
    with Session(engine) as rows, pytest.raises(TokenNameError, match="sso:"):
        mint(rows, "officer", "SSO:u-17")


@pytest.mark.parametrize(
    "changes",
    [
        {"oidc_issuer": "https://sso.example"},
        {"oidc_issuer": "https://sso.example", "oidc_client_id": "x"},
        {"oidc_issuer": "ftp://sso.example", **CONFIGURED},
        {"oidc_roles": "owner=x"},
        {"oidc_roles": "officer"},
    ],
)
def test_half_a_configuration_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="LETHE_OIDC"):
        Settings(**changes)


def test_production_wants_a_protected_issuer_and_a_real_secret() -> None:
    production = {
        "environment": "production",
        "data_dir": "/var/lib/lethe",
        "origin": "lethe.example/log",
        "public_url": "https://lethe.example",
        **CONFIGURED,
    }
    with pytest.raises(SettingsError, match="use https"):
        Settings(**production, oidc_issuer="http://sso.example")
    with pytest.raises(SettingsError, match="LETHE_OIDC_CLIENT_SECRET"):
        Settings(
            **{**production, "oidc_client_secret": "changeme"},
            oidc_issuer="https://sso.example",
        )
    assert Settings(**production, oidc_issuer="https://sso.example").oidc_name_claim == "sub"
    assert "none" not in provider.ALGORITHMS
    assert not any(one.startswith("HS") for one in provider.ALGORITHMS)
