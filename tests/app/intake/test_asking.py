"""From the first page to the case: by mail, by an operator's code, with and without a key."""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlmodel import Session, select

from app.api.http.attempts import Limits
from app.ledger.guard import SigningGuard
from app.service.desk.opening import open_case
from app.service.intake.codes import issue
from lethe.certificates.intake_receipt import check_receipt
from lethe.signing.keys import Algorithm, PrivateKey, generate_key
from models import Case, ErasureRequest, IntakeChallenge, IntakeCode, RequestEvent
from tests.app.intake.people import Mailbox, Page, Visitor
from tests.installation import Installation
from tests.workers.jobs.desk.test_cases import shown
from tests.workers.jobs.desk.test_people import ANN, EVE, write

OPEN = "app.service.intake.opening.open_case"


def approve(page: Installation, ref: str) -> None:
    """Approve a case and let the workers finish it."""
    answer = page.caller.operator("POST", f"/v1/cases/{ref}/approve")
    assert answer.status_code == 200, answer.text
    page.drain()


def case_of(page: Installation) -> Case:
    """Return the only case."""
    with Session(page.services.engine) as session:
        return session.exec(select(Case)).one()


def count(page: Installation, table: type) -> int:
    """Return how many rows a table has."""
    with Session(page.services.engine) as session:
        return len(session.exec(select(table)).all())


def test_a_person_asks_follows_and_gets_the_answer(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    received = visitor.open(ANN, box)
    assert "We have received your request." in received.text
    assert "A member of our staff has to review it first." in received.text
    assert "days left, until" in received.text
    assert (box.mails[0]["To"], len(box.mails)) == (ANN, 1)
    assert "http" not in box.mails[0].get_content()  # nothing to click on
    case = case_of(page)
    assert (case.opened_by, case.contact, case.ticket) == ("intake", ANN, "intake")
    with Session(page.services.engine) as session:
        said = session.exec(
            select(RequestEvent).where(RequestEvent.event == "request.on-behalf")
        ).all()
        # The time of the receipt is that of the case, and so is the deadline.
        assert {one.due_at for one in session.exec(select(ErasureRequest))} == {case.due_at}
    expected = "intake page: code by e-mail; no key of the browser signed"
    assert {event.payload["checked"] for event in said} == {expected}
    assert {event.payload["by"] for event in said} == {"intake"}
    approve(page, case.ref)
    done = Page(visitor.follow(received.case_code))
    assert "The deletion is confirmed by a certificate." in done.text
    assert "Your data is deleted. Our system was changed and checked" in done.text
    assert not done.can_withdraw
    assert "/verify" in done.links
    page.check()


def test_the_answer_says_nothing_of_whom_it_knows(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    pages = [Page(visitor.ask(one)) for one in (ANN, EVE, "nobody@example.org")]
    assert len({one.text for one in pages}) == 1
    assert [mail["To"] for mail in box.mails] == [ANN, EVE, "nobody@example.org"]
    assert ANN not in pages[0].response.text


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (EVE, "Our system has never learned from your data."),
        ("nobody@example.org", "We have found nothing about you"),
    ],
)
def test_whoever_is_nowhere_gets_that_answer_at_once(
    page: Installation, visitor: Visitor, box: Mailbox, address: str, words: str
) -> None:
    case = visitor.open(address, box)
    assert words in case.text
    assert not case.can_withdraw
    answer = visitor.follow(case.case_code, "/intake/file", file="answer")
    assert answer.headers["content-disposition"] == 'attachment; filename="answer.json"'
    assert "payload" in answer.json()


def test_whoever_was_erased_before_is_told_so(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    visitor.open(ANN, box)
    approve(page, case_of(page).ref)
    again = visitor.open(ANN, box)
    assert "A member of our staff approved" not in again.text  # of the earlier case
    assert "Your data was deleted before, on an earlier request." in again.text


def test_a_form_that_is_sent_again_does_nothing_twice(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    hidden = visitor.get("/intake").fields("/intake/ask", kind="email")
    hidden |= {"value": ANN, "regulation": "gdpr", "sure": "yes"}
    first, second = visitor.send("/intake/ask", hidden), visitor.send("/intake/ask", hidden)
    assert (first.status_code, second.status_code, len(box.mails)) == (200, 200, 1)
    answers = [visitor.confirm(first, box.code()) for _ in range(3)]
    codes = {Page(one).case_code for one in answers}
    assert len(codes) == 1
    assert count(page, Case) == 1
    # Another browser that saw the form and the code gets nothing of it.
    other = Visitor(page.caller.http)
    other.get("/intake")
    assert other.confirm(first, box.code()).status_code == 403
    assert (
        visitor.send("/intake/ask", hidden).status_code == 410
    )  # proven: nothing is shown again
    assert len(box.mails) == 1


def test_a_case_that_is_not_signed_yet_is_shown_once_the_form_is_sent_again(
    page: Installation, visitor: Visitor, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no room")

    form = visitor.ask(ANN)
    with monkeypatch.context() as failing:
        failing.setattr(SigningGuard, "advance", full)
        for _ in range(2):
            assert visitor.confirm(form, box.code()).status_code == 503
    case = Page(visitor.confirm(form, box.code()))
    assert count(page, Case) == 1
    code = case.case_code
    with monkeypatch.context() as failing:
        failing.setattr(SigningGuard, "advance", full)
        for _ in range(2):
            assert visitor.follow(code, "/intake/withdraw").status_code == 503
    assert "You have withdrawn" in Page(visitor.follow(code, "/intake/withdraw")).text
    page.check()


def test_the_address_is_destroyed_once_it_is_proven(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    form = visitor.ask(ANN)
    with Session(page.services.engine) as session:
        assert session.exec(select(IntakeChallenge)).one().asked is not None
    visitor.confirm(form, box.code())
    ref = case_of(page).ref
    with Session(page.services.engine) as session:
        row = session.exec(select(IntakeChallenge)).one()
        assert (row.asked, row.case_ref) == (None, ref)


def test_five_tries_and_no_more(page: Installation, visitor: Visitor, box: Mailbox) -> None:
    form = visitor.ask(ANN)
    wrong = "00000000" if box.code() != "00000000" else "11111111"
    for left in (4, 3, 2, 1, 0):
        answer = visitor.confirm(form, wrong)
        assert answer.status_code == 422
        shown_left = "five times" if left == 0 else f"You have {left} tr"
        assert shown_left in Page(answer).text
    assert visitor.confirm(form, box.code()).status_code == 429
    page.caller.http.app.state.intake_limits = Limits()  # type: ignore[attr-defined]
    assert visitor.confirm(form, box.code()).status_code == 410
    assert count(page, Case) == 0


def test_whoever_resets_the_count_of_tries_in_the_database_gains_none(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    form = visitor.ask(ANN)
    wrong = "00000000" if box.code() != "00000000" else "11111111"
    answers = []
    for _ in range(6):
        write(page, "UPDATE intake_challenges SET tries = 0")
        answers.append(visitor.confirm(form, wrong).status_code)
    assert answers == [422] * 5 + [429]


def test_a_code_expires(page: Installation, visitor: Visitor, box: Mailbox) -> None:
    form = visitor.ask(ANN)
    write(page, "UPDATE intake_challenges SET expires_at = '2020-01-01 00:00:00'")
    answer = visitor.confirm(form, box.code())
    assert answer.status_code == 410
    assert "This code can no longer be used" in Page(answer).text
    # Nor does it count again once its end is moved: the code is bound to the end it had.
    write(page, "UPDATE intake_challenges SET expires_at = '2999-01-01 00:00:00'")
    assert visitor.confirm(form, box.code()).status_code == 422
    assert count(page, Case) == 0


@pytest.mark.parametrize("algorithm", ["ed25519", "ecdsa-p256-sha256"])
def test_the_browsers_key_signs_and_the_receipt_has_it(
    page: Installation, visitor: Visitor, box: Mailbox, algorithm: Algorithm
) -> None:
    form, key = visitor.ask(ANN), generate_key(algorithm)
    statement = Page(form).statement.encode()
    assert json.loads(statement)["service"] == "http://testserver"
    assert ANN not in statement.decode()
    for wrong in (sign(generate_key(algorithm), statement)[1], sign(key, b"other")[1], "AAAA"):
        sent = {"key": sign(key, statement)[0], "signature": wrong}
        answer = visitor.confirm(form, box.code(), **sent)
        assert answer.status_code == 422
        assert "signature does not match" in Page(answer).text
        assert count(page, Case) == 0
    public, signature = sign(key, statement)
    case = Page(visitor.confirm(form, box.code(), key=public, signature=signature))
    file = visitor.follow(case.case_code, "/intake/file", file="receipt").content
    receipt = check_receipt(file, page.services.ledger.verifier)
    assert receipt.record.signed is not None
    assert base64.b64encode(receipt.record.signed.signature).decode() == signature
    with Session(page.services.engine) as session:
        said = session.exec(
            select(RequestEvent).where(RequestEvent.event == "request.on-behalf")
        ).first()
    assert said is not None
    assert "signed by the browser's key" in said.payload["checked"]


def sign(key: PrivateKey, data: bytes) -> tuple[str, str]:
    """Return public key and signature as WebCrypto gives them, in base64."""
    spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = decode_dss_signature(key.sign(data, ec.ECDSA(SHA256())))
        made = r.to_bytes(32) + s.to_bytes(32)
    else:
        made = key.sign(data)
    return base64.b64encode(spki).decode(), base64.b64encode(made).decode()


@pytest.mark.parametrize("key", ["AAAA", "not base64", "A" * 500])
def test_what_is_no_key_is_refused(
    page: Installation, visitor: Visitor, box: Mailbox, key: str
) -> None:
    form = visitor.ask(ANN)
    answer = visitor.confirm(form, box.code(), key=key, signature="AAAA")
    assert answer.status_code == 422
    Page(answer)
    assert count(page, Case) == 0


def test_an_operators_code_proves_another_identity(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    with Session(page.services.engine) as session:
        code = issue(
            session, page.services.root_secret, "customer", "C 77", "passport shown", "desk"
        )
        session.commit()
    form = visitor.ask("c77", kind="customer", proof="operator")
    assert box.mails == []
    assert visitor.confirm(form, "AAAAA-AAAAA-AAAAA-A").status_code == 422
    other = visitor.ask("c78", kind="customer", proof="operator")
    assert visitor.confirm(other, code).status_code == 422  # of another number
    case = Page(visitor.confirm(form, code.lower().replace("-", " ")))
    assert "We have found nothing about you" in case.text
    assert case_of(page).contact is None
    assert count(page, IntakeCode) == 0
    third = visitor.ask("c77", kind="customer", proof="operator")
    assert visitor.confirm(third, code).status_code == 422  # used
    assert shown(page, case_of(page).ref).json()["opened_by"] == "intake"


@pytest.mark.parametrize("column", ["expires_at = '2999-01-01 00:00:00'", "mac = 'a'"])
def test_a_code_that_the_database_prolongs_is_none(
    page: Installation, visitor: Visitor, column: str
) -> None:
    with Session(page.services.engine) as session:
        code = issue(
            session, page.services.root_secret, "customer", "77", "passport shown", "desk"
        )
        session.commit()
    write(page, f"UPDATE intake_codes SET {column}")
    form = visitor.ask("77", kind="customer", proof="operator")
    assert visitor.confirm(form, code).status_code == 422
    assert count(page, Case) == 0


def test_rows_of_the_database_prove_nobody(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    """Ann is asked for, and an attacker moves her sealed address under a code of their own."""
    visitor.ask(ANN)
    attacker = Visitor(page.caller.http)
    form = attacker.ask("mallory@example.org")
    mine = Page(form).fields("/intake/confirm")["challenge"]
    code = box.code()
    write(
        page,
        "UPDATE intake_challenges SET asked = (SELECT asked FROM intake_challenges "
        f"WHERE ref <> '{mine}') WHERE ref = '{mine}'",
    )
    assert attacker.confirm(form, code).status_code == 422
    assert count(page, Case) == 0
    # Nor does a row that claims to be proven show another's case.
    Visitor(page.caller.http).open(ANN, box)
    ref = case_of(page).ref
    write(page, f"UPDATE intake_challenges SET case_ref = '{ref}' WHERE ref = '{mine}'")
    assert attacker.confirm(form, code).status_code == 410


def test_a_mail_that_is_not_taken_is_said_and_the_form_can_be_sent_again(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    hidden = visitor.get("/intake").fields("/intake/ask", kind="email")
    hidden |= {"value": ANN, "regulation": "ccpa", "sure": "yes"}
    box.refuse = True
    answer = visitor.send("/intake/ask", hidden)
    assert answer.status_code == 503
    assert "The mail could not be sent" in Page(answer).text
    assert count(page, IntakeChallenge) == 0
    box.refuse = False
    assert visitor.send("/intake/ask", hidden).status_code == 200
    assert len(box.mails) == 1


def test_what_cannot_be_opened_now_keeps_the_code(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    form = visitor.ask(ANN)
    write(page, "UPDATE models SET state = 'fitting' WHERE ref = 'one'")
    answer = visitor.confirm(form, box.code())
    assert answer.status_code == 503
    assert "Your code stays valid" in Page(answer).text
    assert count(page, Case) == 0
    write(page, "UPDATE models SET state = 'ready' WHERE ref = 'one'")
    assert visitor.confirm(form, box.code()).status_code == 200


def test_two_calls_at_once_open_one_case(
    page: Installation, visitor: Visitor, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = visitor.ask(ANN)
    code = box.code()
    codes: list[str] = []

    def later(*arguments: Any, **named: Any) -> Any:
        """Let another call with the same code be faster."""
        monkeypatch.setattr(OPEN, open_case)
        codes.append(Page(visitor.confirm(form, code)).case_code)
        return open_case(*arguments, **named)

    monkeypatch.setattr(OPEN, later)
    codes.append(Page(visitor.confirm(form, code)).case_code)
    assert codes[0] == codes[1]
    assert count(page, Case) == 1
    page.check()
