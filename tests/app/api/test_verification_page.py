"""/verify: a page that may load its own files and open no connection."""

import re

import pytest
from sqlalchemy import Engine

from app.keys.rotate_log import revoke_log, rotate_log
from app.ledger.startup import create_ml_dsa, init_log
from app.settings import Settings
from lethe.log.key_changes import ML_DSA
from lethe.web.page import MODULES, STYLE
from tests.app.api.test_requests import problem
from tests.installation import Installation, install


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


def required(made: Installation) -> list[str]:
    """Return the lines of the page's field for the log's keys; it requires each key."""
    page = made.caller.http.get("/verify").text
    field = re.search(r'<textarea id="log-key"[^>]*>([^<]*)</textarea>', page)
    assert field is not None
    return field[1].splitlines()


def test_the_second_key_of_a_log_that_began_with_it_is_required(
    settings: Settings, engine: Engine
) -> None:
    ledger = init_log(settings, engine, ml_dsa=True)
    with install(settings) as made:
        (old,) = ledger.signing(ML_DSA)
        assert required(made) == [ledger.verifier.vkey, old.vkey]
        # As the log's other key: the old one in the overlap, then the new one.
        new = rotate_log(settings, ledger, role=ML_DSA).key.verifier
        assert required(made) == [ledger.verifier.vkey, old.vkey]
        revoke_log(settings, ledger, "superseded", role=ML_DSA)
        assert required(made) == [ledger.verifier.vkey, new.vkey]


def test_a_second_key_that_came_later_is_not_required_of_earlier_certificates(
    settings: Settings, engine: Engine
) -> None:
    vkey = init_log(settings, engine).verifier.vkey
    create_ml_dsa(settings)
    with install(settings) as made:
        assert made.services.ledger.signing(ML_DSA)
        assert required(made) == [vkey]


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
