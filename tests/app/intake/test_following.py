"""A case by its code: files, withdrawal, decisions of officers, and who gets nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlmodel import Session, select

from app.api.http import parsing
from app.reconcile.fsck.run import fsck
from app.service.intake.case_code import case_code
from app.service.issued import documents
from lethe.certificates.case_summary import check_summary
from lethe.certificates.intake_receipt import IntakeReceiptError, check_receipt, person_digest
from models import Case, ErasureRequest
from tests.app.intake.people import Mailbox, Page, Visitor
from tests.app.intake.test_asking import approve, case_of
from tests.installation import Installation, taken
from tests.workers.jobs.desk.test_people import ANN, BOB, write


def test_the_receipt_verifies_offline_and_a_changed_one_does_not(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    code = visitor.open(ANN, box).case_code
    answer = visitor.follow(code, "/intake/file", file="receipt")
    assert answer.headers["content-disposition"] == 'attachment; filename="receipt.json"'
    assert answer.headers["cache-control"] == "no-store"
    log = page.services.ledger.verifier
    receipt = check_receipt(answer.content, log)
    record = receipt.record
    assert record.case == case_of(page).ref
    assert record.statement.person == person_digest(receipt.salt, "email", ANN.upper())
    assert set(record.entries) == {"one", "two"}
    data = answer.text
    for old, new in (
        (record.case, record.case.replace("-4", "-5")),
        ("code by e-mail", "code of an operator"),
        ('"regulation":"gdpr"', '"regulation":"ccpa"'),
        (f'"logIndex":"{receipt.entry.log_index}"', '"logIndex":"1"'),
        (f'"treeSize":"{receipt.entry.tree_size}"', '"treeSize":"999"'),
    ):
        assert old in data
        with pytest.raises(IntakeReceiptError):
            check_receipt(data.replace(old, new).encode(), log)


def test_the_picture_is_drawn_and_not_spelled(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    shown = visitor.open(ANN, box).response.text
    figure = shown[shown.index("<figure") : shown.index("</figure>")]
    assert "<svg " in figure
    assert "<path " in figure
    assert "&lt;" not in figure


def test_files_of_a_certified_case(page: Installation, visitor: Visitor, box: Mailbox) -> None:
    code = visitor.open(ANN, box).case_code
    early = visitor.follow(code, "/intake/file", file="answer")
    assert early.status_code == 404
    approve(page, case_of(page).ref)
    done = Page(visitor.follow(code))
    parts = [fields["part"] for _, fields in done.forms if fields.get("file") == "certificate"]
    assert parts == ["0", "1"]
    bundles = [
        visitor.follow(code, "/intake/file", file="certificate", part=part).content
        for part in parts
    ]
    answer = visitor.follow(code, "/intake/file", file="answer").content
    from app.ledger.startup import load_issuer

    key, _ = load_issuer(page.services.settings)
    check_summary(answer, key.public_key(), bundles)
    html = visitor.follow(code, "/intake/file", file="html", part="0", language="de")
    assert html.headers["content-type"] == "text/html; charset=utf-8"
    assert 'lang="de"' in html.text
    for wrong in ({"file": "html", "part": "7"}, {"file": "x", "part": "0"}, {"file": ""}):
        refused = visitor.follow(code, "/intake/file", **wrong)
        assert refused.status_code == 404
        assert "There is no such file" in Page(refused).text


def test_a_file_is_made_when_it_is_its_turn(
    page: Installation, visitor: Visitor, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = visitor.open(ANN, box).case_code
    approve(page, case_of(page).ref)
    monkeypatch.setattr(parsing, "WAIT", 0.05)
    wanted = {"file": "html", "part": "0"}
    assert visitor.follow(code, "/intake/file", **wanted).status_code == 200
    with taken(page, "documents", page.settings.max_parsed_at_once):
        assert visitor.follow(code).status_code == 200  # only files take long
        refused = visitor.follow(code, "/intake/file", **wanted)
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    assert visitor.follow(code, "/intake/file", **wanted).status_code == 200


def test_who_asks_for_many_files_keeps_nobody_from_sending_rows(
    page: Installation, visitor: Visitor, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = visitor.open(ANN, box).case_code
    approve(page, case_of(page).ref)
    monkeypatch.setattr(parsing, "WAIT", 0.5)
    going_on, begun = threading.Event(), threading.Semaphore(0)

    def slow(*_: object) -> bytes:
        begun.release()
        assert going_on.wait(30)
        return b""

    monkeypatch.setattr(documents, "html", slow)
    wanted = {"file": "html", "part": "0"}
    with ThreadPoolExecutor() as pool:
        try:
            many = [
                pool.submit(visitor.follow, code, "/intake/file", **wanted)
                for _ in range(page.settings.max_parsed_at_once)
            ]
            for _ in many:
                assert begun.acquire(timeout=30)
            sent = page.caller.http.post("/v1/certificates/verify", files={"bundle": b"{}"})
            assert sent.status_code != 503
        finally:
            going_on.set()
    assert [one.result().status_code for one in many] == [200] * len(many)


def test_a_person_withdraws_and_sending_it_again_does_nothing(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    code = visitor.open(ANN, box).case_code
    for _ in range(2):
        answer = visitor.follow(code, "/intake/withdraw")
        assert "You have withdrawn your request." in Page(answer).text
    with Session(page.services.engine) as session:
        assert {one.state for one in session.exec(select(ErasureRequest))} == {"withdrawn"}
    page.check()


def test_it_is_too_late_to_withdraw_once_it_began(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    code = visitor.open(ANN, box).case_code
    page.caller.operator("POST", f"/v1/cases/{case_of(page).ref}/approve")
    write(page, "UPDATE jobs SET lease_token = 1 WHERE kind = 'erase'")
    answer = visitor.follow(code, "/intake/withdraw")
    assert answer.status_code == 409
    assert "It is too late to withdraw" in Page(answer).text


def test_a_second_case_withdraws_nothing_of_the_first(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    first = visitor.open(ANN, box).case_code
    second = visitor.open(ANN, box)
    assert not second.can_withdraw
    visitor.follow(second.case_code, "/intake/withdraw")
    assert Page(visitor.follow(first)).can_withdraw


def test_decisions_are_read_with_reason_and_remedy(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    code = visitor.open(ANN, box).case_code
    ref = case_of(page).ref
    for act, body in (
        ("extend", {"reason": "complexity"}),
        ("pause", {"reason": "identity"}),
        ("refuse", {"reason": "legal-obligation"}),
    ):
        done = page.caller.operator("POST", f"/v1/cases/{ref}/{act}", json=body)
        assert done.status_code == 200, done.text
        shown = Page(visitor.follow(code)).text
        assert "Reason: " in shown
    assert "the law, or a public task, obliges us" in shown
    assert "New time limit: " in shown
    assert "supervisory authority" in shown
    assert "We have not deleted your data." in shown
    german = Page(visitor.follow(code, language="de")).text
    assert "ein Gesetz oder eine öffentliche Aufgabe" in german


def test_decisions_on_an_earlier_case_are_not_read_in_a_second_one(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    """Its time limit is neither extended nor paused, and nobody is asked a question."""
    first = visitor.open(ANN, box).case_code
    ref = case_of(page).ref
    second = visitor.open(ANN, box).case_code
    for act, reason in (("extend", "complexity"), ("pause", "identity")):
        done = page.caller.operator("POST", f"/v1/cases/{ref}/{act}", json={"reason": reason})
        assert done.status_code == 200, done.text
    told = ("We need more time.", "New time limit: ", "We have a question for you")
    assert all(text in Page(visitor.follow(first)).text for text in told)
    shown = Page(visitor.follow(second)).text
    assert not any(text in shown for text in told)
    assert "days left" in shown


def test_unknown_codes_get_one_answer(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    code = visitor.open(ANN, box).case_code
    by_operator = page.caller.operator(
        "POST",
        "/v1/cases",
        json={"person": {"kind": "email", "sha256": "0" * 64}, "ticket": "T"},
    ).json()["ref"]
    wrong = [
        "",
        "x",
        code[:-1],
        code[:-1] + ("0" if code[-1] != "0" else "1"),
        case_of_person(page),
        case_code(page.services.root_secret, by_operator),  # opened elsewhere
        "<script>alert(1)</script>",
        "é" * 40,
    ]
    answers = [visitor.follow(one) for one in wrong]
    assert {answer.status_code for answer in answers} == {404}
    assert len({Page(answer).text for answer in answers}) == 1
    assert "script>alert" not in answers[-2].text
    typed = code.lower().replace("-", " ").replace("0", "o").replace("1", "l")
    assert visitor.follow(typed).status_code == 200


def case_of_person(page: Installation) -> str:
    """Return the reference of the case of the page."""
    with Session(page.services.engine) as session:
        return session.exec(select(Case.ref).where(Case.opened_by == "intake")).one()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE intake_proofs SET log_index = log_index - 1",
        "UPDATE intake_proofs SET log_index = 999999",
        "UPDATE intake_proofs SET case_ref = '{bob}' WHERE case_ref = '{ann}'",
        "UPDATE cases SET opened_by = 'alice'",
        "UPDATE cases SET regulation = 'ccpa'",
    ],
)
def test_a_case_that_the_log_does_not_have_is_not_shown(
    page: Installation, visitor: Visitor, box: Mailbox, statement: str
) -> None:
    code = visitor.open(ANN, box).case_code
    ann = case_of(page).ref
    Visitor(page.caller.http).open(BOB, box)
    with Session(page.services.engine) as session:
        (bob,) = (one.ref for one in session.exec(select(Case)) if one.ref != ann)
    if "{bob}" in statement:
        write(page, f"DELETE FROM intake_proofs WHERE case_ref = '{bob}'")
        code = case_code(page.services.root_secret, bob)
    write(page, statement.format(ann=ann, bob=bob))
    for address in ("/intake/case", "/intake/withdraw"):
        answer = visitor.follow(code, address)
        assert answer.status_code in (500, 503), answer.text
        assert "Something went wrong on our side" in Page(answer).text
    with Session(page.services.engine) as session:
        assert {one.state for one in session.exec(select(ErasureRequest))} == {
            "awaiting-review"
        }
    if "regulation" not in statement:  # what a case's parts commit to is compared when read
        assert "intake" in {one.check for one in fsck(page.services.ledger).findings}
