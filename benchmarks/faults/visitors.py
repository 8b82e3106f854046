"""A person's request on the intake page: the form, the code in a mail, the case, its end.

What a browser and a mailbox hold lies beside the data folder: whoever starts again is the same
person, with the page that is open and the mails that came. Several at once are one person who
sends a form more than once.
"""

import base64
import json
import os
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from sqlmodel import Session, col, func, select

from app.intake import asking
from app.settings import Settings
from benchmarks.faults import officers
from benchmarks.faults.clients import answered
from benchmarks.faults.workload import StuckError, Told
from models import Case, ErasureRequest, IntakeChallenge, IntakeProof, LogEntry
from tests.app.intake.people import CODE, Page, Visitor
from tests.installation import Installation

ADDRESS = "ann@example.org"  # officers.PERSON
SETTINGS: dict[str, Any] = {
    "intake": True,
    "smtp_url": SecretStr("smtp+plain://127.0.0.1:25"),  # nothing is sent there
    "mail_from": "privacy@example.com",
}
FORMS = 3  # that a person fills in whose mails do not come
MAIL_S = 3.0  # that a person waits for a mail
OVER = 410  # the code has expired, or the form was proven before
FORM, MAIL = "form-{}.json", "mail-{}-{}"


def known(made: Installation) -> None:
    """Have a model know the person."""
    officers.name(made)


def ask_and_withdraw(made: Installation, told: Told) -> None:
    """Ask for a code, open a case with it, keep its receipt, and withdraw it."""
    _take_mails(made)
    visitor = Visitor(made.caller.http)
    page = _opened(made, visitor)
    code = page.case_code
    got = answered(lambda: visitor.follow(code, "/intake/file", file="receipt"), 200).json()
    entry = got["entry"]
    told("receipt", [got["record"]["case"], int(entry["logIndex"]), entry["leaf"]])
    answered(lambda: visitor.follow(code, "/intake/withdraw"), 200)
    told("taken-back", got["record"]["case"])


def are_withdrawn(session: Session) -> bool:
    """Return whether there is a request, and all are withdrawn."""
    return set(session.exec(select(ErasureRequest.state)).all()) == {"withdrawn"}


def why_unproven(session: Session, value: list[Any]) -> str | None:
    """Return what is missing of the case of a receipt."""
    ref, index, leaf = value
    entry = session.get(LogEntry, index)
    if entry is None or entry.leaf != base64.b64decode(leaf):
        return f"the log's entry {index} is not that of the receipt"
    if session.get(Case, ref) is None or session.get(IntakeProof, ref) is None:
        return f"the case {ref}, or its proof, is not stored"
    return None


def why_open(session: Session, ref: str) -> str | None:
    """Return why a case is not withdrawn."""
    case = session.get(Case, ref)
    if case is None:
        return f"the case {ref} is not stored"
    named = [part["request"] for part in case.parts if part["request"]]
    query = select(ErasureRequest.state).where(col(ErasureRequest.id).in_(named))
    states = session.exec(query).all()
    return None if set(states) == {"withdrawn"} else f"the requests of {ref} are {states}"


def doubled(session: Session, settings: Settings) -> list[str]:
    """Return what a person who proved one form has twice: cases, proofs, mails."""
    found = []
    proven = select(func.count()).where(col(IntakeChallenge.case_ref).is_not(None))
    forms = session.exec(proven).one()
    for table in (Case, IntakeProof):
        number = session.exec(select(func.count()).select_from(table)).one()
        if number != forms:
            found.append(f"{forms} forms were proven, and {number} {table.__tablename__} began")
    for form in range(FORMS):
        if (mails := len(list(_browser(settings).glob(MAIL.format(form, "*"))))) > 1:
            found.append(f"form {form} had {mails} codes mailed")
    return found


def _opened(made: Installation, visitor: Visitor) -> Page:
    """Return the page of the case, which the last form that has a code opens."""
    for _ in range(FORMS):
        number, form = _form(made, visitor)
        sent = {**form, "kind": "email", "value": ADDRESS, "regulation": "gdpr", "sure": "yes"}
        answered(partial(visitor.send, "/intake/ask", sent), 200, OVER)
        if (code := _mailed(made, number)) is not None:
            sent = {**form, "challenge": _nonce(form), "code": code}
            answer = answered(partial(visitor.send, "/intake/confirm", sent), 200, OVER)
            if answer.status_code == 200:
                return Page(answer)
        _begin(made, visitor, number + 1)  # "ask for another code"
    raise StuckError("no code came")


def _form(made: Installation, visitor: Visitor) -> tuple[int, dict[str, str]]:
    """Return the last form of this browser, with its number; begin the first one."""
    last = max((int(one.stem.split("-")[1]) for one in _forms(made)), default=None)
    if last is None:
        _begin(made, visitor, last := 0)
    kept = json.loads((_browser(made.settings) / FORM.format(last)).read_text())
    visitor.http.cookies.update(kept["cookies"])
    return last, kept["fields"]


def _forms(made: Installation) -> list[Path]:
    return list(_browser(made.settings).glob(FORM.format("*")))


def _begin(made: Installation, visitor: Visitor, number: int) -> None:
    """Load the form anew, unless another window of this browser did."""
    page = answered(lambda: visitor.http.get("/intake", headers=visitor.headers), 200)
    fields = Page(page).fields("/intake/ask", kind="email")
    kept = {"cookies": dict(visitor.http.cookies), "fields": fields}
    own = _browser(made.settings) / f"{os.getpid()}"
    own.write_text(json.dumps(kept))
    with suppress(FileExistsError):
        os.link(own, _browser(made.settings) / FORM.format(number))
    own.unlink()


def _nonce(fields: dict[str, str]) -> str:
    return fields["form"].split(".")[1]


def _mailed(made: Installation, number: int) -> str | None:
    """Return the code of a form's mail once it is there."""
    until = time.monotonic() + MAIL_S
    while True:
        for mail in _browser(made.settings).glob(MAIL.format(number, "*")):
            if (found := CODE.search(mail.read_text())) is not None:
                return "".join(found.groups())
        if time.monotonic() > until:
            return None
        time.sleep(0.05)


def _take_mails(made: Installation) -> None:
    """Have mails lie beside the data folder."""
    folder = _browser(made.settings)
    honest = asking._mail

    def mail(request: Any, services: Any, ref: str, asked: Any, code: str) -> None:
        def send(_: Settings, message: Any) -> None:
            numbers = [
                one.stem.split("-")[1]
                for one in _forms(made)
                if _nonce(json.loads(one.read_text())["fields"]) == ref
            ]
            for number in numbers:
                path = folder / f".{os.getpid()}"
                path.write_text(message.text)
                path.rename(folder / MAIL.format(number, time.monotonic_ns()))

        vars(asking).update(send=send)
        honest(request, services, ref, asked, code)

    vars(asking).update(_mail=mail)


def _browser(settings: Settings) -> Path:
    folder = settings.data_dir.parent / "browser"
    folder.mkdir(exist_ok=True)
    return folder
