"""/verify: a page that may load its own files and open no connection."""

import pytest

from lethe.web.page import MODULES, STYLE
from tests.app.api.test_requests import problem
from tests.installation import Installation


def test_the_page_has_the_keys_and_may_send_nothing(installation: Installation) -> None:
    http = installation.caller.http
    answer = http.get("/verify")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(
        part.strip().partition(" ")[::2]
        for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"  # connect-src too: nothing can be uploaded
    assert policy.keys().isdisjoint({"connect-src", "img-src"})
    assert (policy["form-action"], policy["frame-ancestors"]) == ("'none'", "'none'")
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert http.get("/v1/log/vkey").text.strip() in answer.text
    assert http.get("/v1/certificates/issuer").text.strip() in answer.text


def test_its_files_are_served_and_no_others(installation: Installation) -> None:
    http = installation.caller.http
    for name in MODULES:
        answer = http.get(f"/verify/{name}")
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert http.get(f"/verify/{STYLE}").headers["content-type"] == "text/css; charset=utf-8"


@pytest.mark.parametrize("name", ["main.mjs", "page.py", "__init__.py", "x", "%2e%2e"])
def test_what_is_no_file_of_the_page(installation: Installation, name: str) -> None:
    problem(installation.caller.http.get(f"/verify/{name}"), 404, "not-found")
