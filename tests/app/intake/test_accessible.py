"""Every page of the intake for whoever hears it, in each language."""

import re
from datetime import timedelta

import pytest
from sqlmodel import Session, select

from app.intake.render import words
from lethe.words.texts import LANGUAGES, Language
from models import ErasureRequest
from models.database.types import utcnow
from tests.app.accessible import heard
from tests.app.intake.people import Mailbox, Visitor
from tests.app.intake.test_asking import approve, case_of
from tests.installation import Installation
from tests.workers.jobs.desk.test_people import ANN


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_page_has_language_title_headings_and_labels(
    page: Installation, box: Mailbox, language: Language
) -> None:
    visitor = Visitor(page.caller.http, language)
    for address in ("/intake", "/intake/case"):
        heard(visitor.get(address).response.text, language)
    asked = visitor.ask(ANN)
    heard(asked.text, language)
    wrong = heard(visitor.confirm(asked, "00000000").text, language)
    [code] = [one for one in wrong.fields if one["id"] == "code"]
    assert code["aria-invalid"] == "true"
    assert "wrong" in code["aria-describedby"].split()
    done = visitor.confirm(asked, box.code())
    assert done.status_code == 200
    heard(done.text, language)
    assert re.search(r'role="img" aria-label="[^"]*QR', done.text)
    heard(visitor.follow("x").text, language)


def test_a_certified_case_has_headings_and_named_buttons(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    code = visitor.open(ANN, box).case_code
    approve(page, case_of(page).ref)

    heard(visitor.follow(code).text, "en")


def test_the_last_day_is_named_and_not_called_today(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    """Less than 24 hours are left, and most of them may be tomorrow's."""
    code = visitor.open(ANN, box).case_code
    with Session(page.services.engine) as session:
        for request in session.exec(select(ErasureRequest)):
            request.due_at = utcnow() + timedelta(hours=23)
            session.add(request)
        session.commit()
    shown = visitor.follow(code).text
    assert "Less than one day left, until " in shown
    assert "today" not in shown


def test_one_minute_is_not_one_minutes() -> None:
    for language, text in (("en", "in 1 minute."), ("de", "in 1 Minute"), ("fr", "1 minute.")):
        _, one, _ = words(language).sections["errors"]["intake-limit"]
        assert text in one.format(wait=1)
