"""Bad input: a clear page, nothing stored, nothing repeated, nothing of others."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import event
from sqlmodel import Session, select
from starlette.testclient import TestClient

from app.api.http.attempts import (
    MOST_KEYS,
    Bound,
    Limits,
    client_key,
    of_client,
)
from app.intake import forms
from app.main import create_app
from app.problems import AttemptsError
from app.purge import retention
from app.purge.search import search
from app.service.intake import codes, following
from app.service.parts import find_case
from lethe.identity import IdentityError
from models import Case, IntakeChallenge, IntakeCode, IntakeProof
from models.database.types import clock
from tests.app.intake.people import Mailbox, Page, Visitor
from tests.app.intake.test_asking import case_of, count
from tests.installation import Installation
from tests.workers.jobs.desk.test_people import ANN, write
from tests.workers.jobs.leases.test_deaths import set_ahead

HIDDEN = {"regulation": "gdpr", "sure": "yes", "value": ANN}
SCRIPT = "<script>alert(1)</script>"


def nothing_stored(site: Installation, box: Mailbox) -> None:
    """Insist that nothing is stored and nobody was mailed."""
    assert count(site, IntakeChallenge) == count(site, Case) == 0
    assert box.mails == []


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://testserver:81"},
        {"origin": "http://testserver", "sec-fetch-site": "cross-site"},
        {"origin": "http://testserver", "sec-fetch-site": "same-site"},
    ],
)
def test_posts_of_other_sites_are_refused(
    site: Installation, visitor: Visitor, box: Mailbox, headers: dict[str, str]
) -> None:
    hidden = visitor.get("/intake").fields("/intake/ask", kind="email") | HIDDEN
    answer = visitor.send("/intake/ask", hidden, **headers)
    assert answer.status_code == 403
    assert "This form can no longer be used" in Page(answer).text
    nothing_stored(site, box)


def test_posts_of_no_site_at_all_are_refused(
    site: Installation, visitor: Visitor, box: Mailbox
) -> None:
    hidden = visitor.get("/intake").fields("/intake/ask", kind="email") | HIDDEN
    assert visitor.http.post("/intake/ask", data=hidden).status_code == 403
    nothing_stored(site, box)


@pytest.mark.parametrize("form", ["", "x", "1.2.3", "9999999999.aa.bb", "²²²²²²²²²².a.b"])
def test_forms_that_the_page_did_not_make_are_refused(
    site: Installation, visitor: Visitor, box: Mailbox, form: str
) -> None:
    hidden = visitor.get("/intake").fields("/intake/ask", kind="email") | HIDDEN
    assert visitor.send("/intake/ask", hidden | {"form": form}).status_code == 403
    nothing_stored(site, box)


def test_a_form_is_of_one_browser_and_of_a_day(
    site: Installation, visitor: Visitor, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = visitor.get("/intake").fields("/intake/ask", kind="email") | HIDDEN
    other = Visitor(site.caller.http)
    assert other.send("/intake/ask", hidden).status_code == 403  # no cookie
    other.get("/intake")
    assert other.send("/intake/ask", hidden).status_code == 403  # another cookie

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> "Later":
            return cls.fromtimestamp((datetime.now(UTC) + timedelta(hours=13)).timestamp(), UTC)

    monkeypatch.setattr(forms, "datetime", Later)
    assert visitor.send("/intake/ask", hidden).status_code == 403
    nothing_stored(site, box)


@pytest.mark.parametrize(
    "changes",
    [
        {"value": ""},
        {"value": "   "},
        {"value": "nobody"},
        {"value": "a@b@c"},
        {"value": "victim@straße.example"},  # folds to another domain
        {"value": "straße@example.org"},
        {"value": "\u212aim@example.org"},  # Kelvin sign, folds to k
        {"value": "straße@example.org", "proof": "operator"},
        {"value": "a@example.org, b@example.org"},
        {"value": "Ann <a@example.org>"},
        {"value": "a@example.org\r\nBcc: b@example.org"},
        {"value": "a@example.org\x00"},
        # The header's parser decodes it: a@b.de, c@d.de.
        {"value": "a@=?utf-8?q?b.de=2cc=40d.de?="},
        {"value": SCRIPT},
        {"value": f"{'a' * 250}@example.org"},
        # Looked up as strasse.example and roSSmann: the code would go to somebody else.
        {"value": "ann@straße.example"},
        {"value": "roßmann@example.org"},
        {"value": "ann@σίσυφος.example", "proof": "operator"},
        {"kind": SCRIPT},
        {"kind": "phone"},  # not configured
        {"kind": "", "value": "c77"},
        {"regulation": ""},
        {"regulation": SCRIPT},
        {"sure": ""},
        {"sure": SCRIPT},
        {"language": SCRIPT, "value": ""},
    ],
)
def test_what_is_no_identity_is_refused_and_not_repeated(
    site: Installation, visitor: Visitor, box: Mailbox, changes: dict[str, str]
) -> None:
    hidden = visitor.get("/intake").fields("/intake/ask", kind="email") | HIDDEN
    answer = visitor.send("/intake/ask", hidden | changes)
    assert answer.status_code == 422
    assert "We cannot use what you entered" in Page(answer).text
    assert "alert(1)" not in answer.text
    nothing_stored(site, box)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"x=" + b"a" * 9000, "application/x-www-form-urlencoded"),
        (b"a=1&a=2", "application/x-www-form-urlencoded"),
        (b"&".join(b"f%d=1" % n for n in range(40)), "application/x-www-form-urlencoded"),
        (b"a=%ff", "application/x-www-form-urlencoded"),
        ("é=1".encode(), "application/x-www-form-urlencoded"),
        (b'{"a": 1}', "application/json"),
        (b"--x\r\n\r\n--x--", "multipart/form-data; boundary=x"),
        (b"", "text/plain"),
    ],
)
@pytest.mark.parametrize("address", ["/intake/ask", "/intake/confirm", "/intake/file"])
def test_what_is_no_form_is_refused(
    site: Installation, visitor: Visitor, box: Mailbox, address: str, body: bytes, kind: str
) -> None:
    headers = visitor.headers | {"content-type": kind}
    answer = visitor.http.post(address, content=body, headers=headers)
    assert answer.status_code == (413 if len(body) > 8192 else 403)
    Page(answer)
    nothing_stored(site, box)


def test_a_huge_form_is_refused_unread(site: Installation, visitor: Visitor) -> None:
    headers = visitor.headers | {"content-type": "application/x-www-form-urlencoded"}
    answer = visitor.http.post("/intake/ask", content=b"a" * 2_000_000, headers=headers)
    assert answer.status_code == 413


@pytest.mark.parametrize("challenge", ["", "0" * 32, "x" * 32, SCRIPT, "0" * 500])
@pytest.mark.parametrize("code", ["12345678", SCRIPT, "é", "", "1" * 70])
def test_codes_of_no_challenge_get_one_answer(
    site: Installation, visitor: Visitor, box: Mailbox, challenge: str, code: str
) -> None:
    hidden = visitor.get("/intake").fields("/intake/ask", kind="email")
    sent = hidden | {"challenge": challenge, "code": code}
    answer = visitor.send("/intake/confirm", sent)
    assert answer.status_code == 410
    assert "This code can no longer be used" in Page(answer).text
    assert "alert(1)" not in answer.text
    assert count(site, Case) == 0


@pytest.mark.parametrize(
    ("most", "values"),
    [(10, [f"a{n}@example.org" for n in range(11)]), (3, [ANN, ANN.upper(), f" {ANN}", ANN])],
    ids=["by client", "by identity"],
)
def test_codes_are_limited_with_an_honest_answer(
    site: Installation, visitor: Visitor, box: Mailbox, most: int, values: list[str]
) -> None:
    answers = [visitor.ask(value) for value in values]
    assert [one.status_code for one in answers] == [200] * most + [429]
    assert 3590 <= int(answers[-1].headers["retry-after"]) <= 3600
    assert "try again in 60 minutes" in Page(answers[-1]).text
    assert len(box.mails) == most == count(site, IntakeChallenge)


def test_all_together_are_limited(site: Installation, box: Mailbox) -> None:
    settings = site.services.settings.model_copy(update={"intake_hourly": 2})
    app = create_app(replace(site.services, settings=settings))
    answers = [Visitor(TestClient(app)).ask(f"a{n}@example.org") for n in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 429]


def test_wrong_codes_of_cases_are_limited_and_right_ones_with_them(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    code = visitor.open(ANN, box).case_code
    statuses = [visitor.follow("0" * 40).status_code for _ in range(61)]
    assert statuses == [404] * 60 + [429]
    assert visitor.follow(code).status_code == 429


def test_the_page_is_off_unless_it_is_switched_on(site: Installation) -> None:
    settings = site.services.settings.model_copy(update={"intake": False})
    app = create_app(replace(site.services, settings=settings))
    http = TestClient(app)
    assert http.get("/intake").status_code == 404
    assert http.post("/intake/ask").status_code == 404


def test_without_mail_only_codes_of_operators_are_asked_for(
    site: Installation, box: Mailbox
) -> None:
    settings = site.services.settings.model_copy(update={"smtp_url": SecretStr("")})
    app = create_app(replace(site.services, settings=settings))
    visitor = Visitor(TestClient(app))
    shown = visitor.get("/intake")
    assert "This service sends no codes by e-mail." in shown.text
    hidden = shown.fields("/intake/ask", proof="operator")
    answer = visitor.send("/intake/ask", {**hidden, **HIDDEN, "kind": "email", "proof": ""})
    assert answer.status_code == 503
    assert count(site, IntakeChallenge) == 0


def test_nobody_is_named_outside_of_the_sealed_contact(
    page: Installation,
    visitor: Visitor,
    box: Mailbox,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    caplog.set_level("INFO")
    needle = "marie.mueller.needle@example.com"
    form = visitor.ask(needle)
    visitor.confirm(form, "00000000")
    answer = visitor.confirm(form, box.code())
    box.refuse = True
    visitor.ask(f"x{needle}")
    code = Page(answer).case_code
    visitor.follow(code)
    metrics = page.caller.operator("GET", "/metrics").text
    # aiosmtpd's own log says whom it got mail for.
    logged = "\n".join(
        record.getMessage() for record in caplog.records if record.name != "mail.log"
    )
    cookies = str(dict(visitor.http.cookies))
    with Session(page.services.engine) as session:
        leaves = session.connection().exec_driver_sql("SELECT leaf FROM log_entries").all()
        tables = [
            session.connection().exec_driver_sql(f"SELECT * FROM {table}").all()
            for table in ("cases", "intake_challenges", "intake_proofs", "request_events")
        ]
    files = [
        path.read_bytes() for path in page.settings.data_dir.parent.rglob("*") if path.is_file()
    ]
    places = [metrics, logged, cookies, str(leaves), str(tables), *map(str, files)]
    assert len(files) > 5
    for secret in (needle, needle.upper(), box.code(), code.replace("-", ""), code):
        assert [n for n, place in enumerate(places) if secret in place] == []
    assert needle not in answer.text
    found = search(page.settings, [needle])
    # What was asked for and not mailed is gone; what was proven is the contact alone.
    assert set(found.leftovers) == {"cases.contact"}
    assert case_of(page).contact == needle  # it would have been found, were it not sealed


def test_what_is_over_is_forgotten(page: Installation, visitor: Visitor, box: Mailbox) -> None:
    visitor.ask(ANN)
    code = visitor.open(ANN, box).case_code
    assert following.forget(page.services) == 0
    write(page, "UPDATE intake_challenges SET expires_at = '2020-01-01 00:00:00'")
    assert following.forget(page.services) == 2
    assert count(page, IntakeChallenge) == 0
    assert visitor.follow(code).status_code == 200
    write(page, "UPDATE cases SET key = NULL")
    assert following.forget_proofs(page.services) == 1
    with Session(page.services.engine) as session:
        row = session.exec(select(IntakeProof)).one()
        assert (row.record, row.key) == (None, None)
    assert following.forget_proofs(page.services) == 0
    assert visitor.follow(code).status_code == 404


def test_proofs_are_not_read_at_each_sweep_nor_all_of_them_with_each_case(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    visitor.open(ANN, box)
    read: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "FROM intake_proofs" in statement:
            read.append(statement)

    event.listen(page.services.engine, "before_cursor_execute", note)
    following.forget(page.services)
    assert read == []
    ref = case_of(page).ref
    page.services.ledger.transact(
        lambda tx: retention.destroy_case(page.services, tx, find_case(tx.session, ref))
    )
    assert len(read) == 1
    assert "case_ref = " in read[0]
    assert following.forget_proofs(page.services) == 0, "the case's own proof was left"


def test_pages_say_their_language_and_load_nothing_from_elsewhere(visitor: Visitor) -> None:
    for language in ("en", "de", "fr"):
        for address in ("/intake", "/intake/case"):
            text = visitor.get(f"{address}?language={language}").response.text
            assert f'<html lang="{language}">' in text
            assert re.findall(r'(?:src|href)="(?:https?:)?//', text) == []
    assert visitor.http.get("/intake/static/intake.mjs").status_code == 200
    assert visitor.http.get("/intake/static/../words/en.toml").status_code == 404
    assert visitor.http.get("/intake/static/x").status_code == 404


def test_the_cookie_is_locked_to_the_site(site: Installation) -> None:
    settings = site.services.settings.model_copy(
        update={"public_url": "https://erasure.example.org"}
    )
    app = create_app(replace(site.services, settings=settings))
    cookie = TestClient(app).get("/intake").headers["set-cookie"]
    assert cookie.startswith("__Host-lethe-intake=")
    assert {"Secure", "HttpOnly", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))


def test_limits_forget_and_are_bounded() -> None:
    now = [0.0]
    limits, bound = Limits(lambda: now[0]), Bound("b", 2, 10.0)
    limits.take((bound, "x"))
    now[0] = 5.0
    limits.take((bound, "x"))
    with pytest.raises(AttemptsError) as refused:
        limits.take((bound, "x"), (bound, "y"))
    assert refused.value.wait == 5
    limits.check((bound, "y"))  # what was refused was counted nowhere
    now[0] = 10.5
    limits.take((bound, "x"))
    for number in range(MOST_KEYS + 10):
        limits.take((bound, str(number)))
    limits.take((bound, "10"))
    with pytest.raises(AttemptsError):
        limits.take((bound, "10"))  # it is one of the last MOST_KEYS
    for _ in range(2):
        limits.take((bound, "9"))  # it was forgotten
    same = [client_key("2001:db8::1"), client_key("2001:db8:0:0:ffff::2")]
    assert same[0] == same[1] != client_key("2001:db8:0:1::1")
    assert client_key("::ffff:192.0.2.1") == client_key("192.0.2.1")
    assert client_key(None) == client_key("no address")


def test_keys_of_one_limit_never_push_out_those_of_another() -> None:
    now = [0.0]
    limits = Limits(lambda: now[0])
    person, flood = Bound("p", 1, 10.0, kept=True), Bound("f", 2, 10.0)
    limits.take((person, "ann"))
    for number in range(MOST_KEYS + 1):
        limits.take((flood, str(number)))
    with pytest.raises(AttemptsError):
        limits.take((person, "ann"))
    now[0] = 1.0
    for number in range(MOST_KEYS - 1):
        limits.take((person, str(number)))
    for key in ("ann", "new"):  # full of keys that count: nobody is forgotten
        with pytest.raises(AttemptsError) as refused:
            limits.take((person, key))
        assert refused.value.wait == 9
    now[0] = 10.5
    limits.take((person, "new"))


def test_networks_of_one_ipv6_site_share_a_limit() -> None:
    limits, bound = Limits(), Bound("b", 1)
    for number in range(4):
        limits.take(*of_client(bound, client_key(f"2001:db8:1:{number:x}::1")))
    with pytest.raises(AttemptsError):
        limits.take(*of_client(bound, client_key("2001:db8:1:ff::1")))
    limits.take(*of_client(bound, client_key("2001:db8:2::1")))
    assert len(of_client(bound, client_key("192.0.2.1"))) == 1


def test_the_address_that_is_mailed_is_the_one_that_is_erased(
    site: Installation, visitor: Visitor, box: Mailbox
) -> None:
    hidden = visitor.get("/intake").fields("/intake/ask", kind="email") | HIDDEN
    assert visitor.send("/intake/ask", hidden | {"value": "ANN@Example.ORG"}).status_code == 200
    assert box.mails[-1]["To"] == "ann@example.org"


def test_no_code_is_issued_for_an_address_that_the_page_refuses(site: Installation) -> None:
    with (
        Session(site.services.engine) as session,
        pytest.raises(IdentityError, match="ASCII"),
    ):
        codes.issue(
            session,
            site.services.root_secret,
            "email",
            "ann@straße.example",
            "passport",
            "desk",
        )


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_code_ends_by_the_databases_clock(
    site: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page compares its end with that clock."""
    set_ahead(monkeypatch, timedelta(hours=-1))
    secret = site.services.root_secret
    with Session(site.services.engine) as session:
        begun = clock(session)
        codes.issue(session, secret, "customer", "77", "passport", "desk")
        ends = session.exec(select(IntakeCode.expires_at)).one()
    assert ends >= begun + timedelta(days=codes.LIFE_DAYS)
