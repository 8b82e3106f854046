"""The intake page gives nobody the certificate of another request."""

from tests.app.intake.people import Mailbox, Page, Visitor
from tests.app.intake.test_asking import approve, case_of
from tests.exchanged import exchange_certificates
from tests.installation import Installation
from tests.workers.jobs.desk.test_people import ANN

FILES = ("certificate", "html", "pdf")


def test_a_case_gets_no_certificate_of_another_request(
    page: Installation, visitor: Visitor, box: Mailbox
) -> None:
    code = visitor.open(ANN, box).case_code
    case = case_of(page)
    approve(page, case.ref)
    one, other = (part["request"] for part in case.parts)
    before = [
        visitor.follow(code, "/intake/file", file="certificate", part=part) for part in "01"
    ]
    assert {answer.status_code for answer in before} == {200}
    exchange_certificates(page.services.engine, one, other)
    for part in "01":
        for file in FILES:
            answer = visitor.follow(code, "/intake/file", file=file, part=part)
            assert answer.status_code == 500
            assert "Something went wrong on our side" in Page(answer).text
    assert visitor.follow(code, "/intake/file", file="answer").status_code == 500
    exchange_certificates(page.services.engine, one, other)
    again = visitor.follow(code, "/intake/file", file="certificate", part="0")
    assert again.content == before[0].content
