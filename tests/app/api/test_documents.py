"""A certificate as a page and as PDF/A-3 over HTTP, in the language that is asked for."""

from base64 import b64encode
from hashlib import sha256
from io import BytesIO
from typing import Any
from uuid import uuid4

import pytest

from lethe.report.certificate import style
from lethe.signing.keys import PrivateKey
from tests.app.api.test_requests import problem
from tests.installation import Installation
from tests.lethe.report.pdfs import needs_pdf


@pytest.fixture
def certified(installation: Installation, with_certificate: PrivateKey) -> Installation:
    installation.caller.key = with_certificate
    return installation


def path_of(installation: Installation) -> str:
    (item,) = installation.caller.operator("GET", "/v1/requests").json()["items"]
    return f"/v1/requests/{item['id']}/certificate"


def test_a_page_is_in_the_language_that_is_asked_for(certified: Installation) -> None:
    http, path = certified.caller.http, path_of(certified)
    english = http.get(f"{path}/html")
    assert english.status_code == 200
    assert english.headers["content-type"] == "text/html; charset=utf-8"
    assert "Erasure confirmed" in english.text
    assert "were checked when" in english.text
    german = http.get(f"{path}/html", headers={"accept-language": "de-CH, en;q=0.5"})
    assert "Löschung bestätigt" in german.text
    french = http.get(
        f"{path}/html", params={"language": "fr"}, headers={"accept-language": "de"}
    )
    assert "Effacement confirmé" in french.text
    problem(http.get(f"{path}/html", params={"language": "la"}), 422, "body-invalid")


def test_the_page_may_use_its_own_style_and_nothing_else(certified: Installation) -> None:
    answer = certified.caller.http.get(f"{path_of(certified)}/html")
    policy = answer.headers["content-security-policy"]
    digest = b64encode(sha256(style().encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert f"<style>{style()}</style>" in answer.text
    assert "<script" not in answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"  # the path is a secret


@needs_pdf
def test_the_pdf_has_the_certificate_attached(certified: Installation) -> None:
    import pikepdf

    http, path = certified.caller.http, path_of(certified)
    answer = http.get(f"{path}/pdf", params={"language": "de"})
    assert answer.headers["content-type"] == "application/pdf"
    with pikepdf.open(BytesIO(answer.content)) as opened:
        (attached,) = opened.attachments.values()
        assert attached.get_file().read_bytes() == http.get(path).content
    assert http.get(f"{path}/pdf", params={"language": "de"}).content == answer.content


@pytest.mark.parametrize("form", ["html", "pdf"])
def test_what_has_no_certificate_has_no_document(ready: Installation, form: str) -> None:
    http: Any = ready.caller.http
    problem(http.get(f"/v1/requests/{uuid4()}/certificate/{form}"), 404, "not-found")
    asked = ready.caller.erase_records("r1").json()
    problem(
        http.get(f"/v1/requests/{asked['id']}/certificate/{form}"),
        404,
        "certificate-not-issued",
    )
