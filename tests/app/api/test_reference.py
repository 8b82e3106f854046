"""/docs is served whole by the service itself."""

import re

from app.api import reference
from tests.installation import Installation


def test_the_page_and_all_it_names_come_from_the_service(installation: Installation) -> None:
    http = installation.caller.http
    page = http.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-security-policy"] == reference.POLICY
    assert "http" not in page.text.replace('charset="utf-8"', "")
    named = re.findall(r'(?:src|spec-url)="([^"]*)"', page.text)
    assert named == ["/openapi.json", reference.PROGRAM]
    for path in named:
        answer = http.get(path)
        assert answer.status_code == 200, path
        assert answer.content
    assert "javascript" in http.get(reference.PROGRAM).headers["content-type"]


def test_no_page_of_fastapi_is_left(installation: Installation) -> None:
    for path in ("/redoc", "/docs/oauth2-redirect"):
        assert installation.caller.http.get(path).status_code == 404


def test_the_policy_lets_nothing_in_from_elsewhere() -> None:
    assert "default-src 'none'" in reference.POLICY
    assert not re.search(r"https?:|\*|unsafe-eval", reference.POLICY)
    (scripts,) = re.findall(r"script-src ([^;]*);", reference.POLICY)
    assert scripts == "'self'"
