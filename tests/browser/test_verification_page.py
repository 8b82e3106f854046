"""The verification page in a browser: served and as a file, with every kind of answer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lethe.certificates.statement import CheckPart
from lethe.report.certificate import Sheet, certificate_html
from lethe.report.pdf import certificate_pdf
from lethe.signing.keys import public_pem
from lethe.web import page as pages
from lethe.words.texts import Language, texts
from tests.browser import accessible
from tests.browser.chromium import DRIVEN
from tests.lethe.certificates.build import BEFORE, Certified, Office
from tests.lethe.certificates.test_verify import (
    CERTIFIED,
    FIRST,
    LOG_TOO,
    SECOND,
    THIRD,
    TWO_OF_THREE,
    cosigned,
)
from tests.lethe.report.pdfs import needs_pdf

pytestmark = DRIVEN

Open = Callable[..., Any]
PAGE = "https://erasure.example/verify"


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[Certified, Path]:
    found = Office().certify()
    directory = tmp_path_factory.mktemp("page")
    found.write(directory)
    (directory / "bundle.json").write_bytes(found.bundle)
    (directory / "evidence.json").write_bytes(found.evidence)
    page = pages.alone(found.log.vkey, public_pem(found.issuer))
    (directory / "verify.html").write_text(page, encoding="utf-8")
    return found, directory


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Open an address; what the page says wrong, or asks of others, fails the test."""
    wrong: list[str] = []
    context = browser.new_context(locale="en-US", viewport={"width": 360, "height": 800})

    def open_page(address: str) -> Any:
        tab = context.new_page()
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.goto(address)
        return tab

    yield open_page
    context.close()
    assert wrong == []


def verdict(tab: Any) -> str:
    tab.wait_for_selector(".verdict", timeout=20_000)
    return str(tab.inner_text(".verdict"))


def test_a_file_is_checked_from_a_disk(certified: tuple[Certified, Path], opened: Open) -> None:
    _, directory = certified
    tab = opened(f"file://{directory}/verify.html")
    tab.set_input_files("#model", str(directory / "models/after.safetensors"))
    tab.set_input_files("#evidence", str(directory / "evidence.json"))
    tab.set_input_files("#file", str(directory / "bundle.json"))
    assert verdict(tab) == "The certificate is authentic."
    assert tab.locator("tbody tr").count() == 9
    assert "not checked" not in tab.inner_text("tbody")
    tab.select_option("#language", "de")
    assert verdict(tab) == "Das Zertifikat ist echt."
    assert tab.evaluate("document.documentElement.lang") == "de"
    assert not tab.evaluate("document.documentElement.scrollWidth > innerWidth")


@needs_pdf
def test_the_pdf_is_taken_as_the_file(certified: tuple[Certified, Path], opened: Open) -> None:
    found, directory = certified
    languages: tuple[Language, ...] = ("en", "de")
    for language in languages:
        made = certificate_pdf(Sheet.of(found.bundle), texts(language))
        (directory / f"{language}.pdf").write_bytes(made)
    # Half of it may still hold the whole attachment, which is then checked as it should be.
    (directory / "cut.pdf").write_bytes(made[:1000])
    tab = opened(f"file://{directory}/verify.html")
    tab.set_input_files("#file", str(directory / "en.pdf"))
    assert verdict(tab) == "The certificate is authentic."
    assert f"canonical, {len(found.bundle)} bytes" in tab.inner_text("tbody")
    tab.set_input_files("#file", str(directory / "cut.pdf"))
    tab.wait_for_function("() => !document.querySelector('.verdict.good')")


def test_what_does_not_hold_is_said(certified: tuple[Certified, Path], opened: Open) -> None:
    found, directory = certified
    tab = opened(f"file://{directory}/verify.html")
    for name, data, words in (
        (
            "changed.json",
            found.bundle.replace(b'"treeSize":"7"', b'"treeSize":"8"'),
            "could not",
        ),
        ("empty.json", b"", "could not"),
        ("no.pdf", b"%PDF-1.7\nnothing", "contains no certificate"),
        ("markup.json", b"<img src=x onerror=alert(1)>", "could not"),
    ):
        (directory / name).write_bytes(data)
        tab.set_input_files("#file", str(directory / name))
        tab.wait_for_function(
            "w => document.querySelector('.verdict')?.innerText.includes(w)", arg=words
        )
    (directory / "before").write_bytes(BEFORE)
    tab.set_input_files("#model", str(directory / "before"))
    tab.set_input_files("#file", str(directory / "bundle.json"))
    tab.wait_for_function(
        "() => document.body.innerText.includes('the model before the erasure')"
    )
    tab.fill("#log-key", "nonsense")
    tab.click("button")
    tab.wait_for_function("() => document.body.innerText.includes('keys cannot be used')")


def test_an_authentic_certificate_of_a_failure_is_not_good(
    certified: tuple[Certified, Path], opened: Open
) -> None:
    _, directory = certified
    check = CheckPart(1, "head-error", "error", "1", None, "0", False)
    (directory / "failed.json").write_bytes(
        Office().certify(checks=(check,), result="FAIL").bundle
    )
    tab = opened(f"file://{directory}/verify.html")
    tab.set_input_files("#file", str(directory / "failed.json"))
    assert "NOT confirmed" in verdict(tab)
    assert tab.locator(".verdict.good").count() == 0


def test_a_witness_policy_is_asked_of_the_certificate(opened: Open, tmp_path: Path) -> None:
    page = pages.alone(CERTIFIED.log.vkey, public_pem(CERTIFIED.issuer))
    (tmp_path / "verify.html").write_text(page, encoding="utf-8")
    for name, signers in (("two.json", (FIRST, THIRD)), ("one.json", (SECOND,))):
        (tmp_path / name).write_bytes(cosigned(*signers))
    tab = opened(f"file://{tmp_path}/verify.html")
    tab.set_input_files("#file", str(tmp_path / "one.json"))
    assert verdict(tab) == "The certificate is authentic."
    assert "no witness policy was given" in tab.inner_text("#answer")
    tab.fill("#policy", TWO_OF_THREE)
    tab.set_input_files("#file", str(tmp_path / "two.json"))
    tab.wait_for_function(
        "() => document.body.innerText.includes('2 of 3 witnesses of the policy signed')"
    )
    assert verdict(tab) == "The certificate is authentic."
    assert "no witness policy was given" not in tab.inner_text("#answer")
    tab.set_input_files("#file", str(tmp_path / "one.json"))
    tab.wait_for_function("() => document.body.innerText.includes('its quorum is not met')")
    assert "it does not satisfy this witness policy" in verdict(tab)
    tab.fill("#policy", "witness of nothing")
    tab.click("button")
    tab.wait_for_function("() => document.body.innerText.includes('keys cannot be used')")


class _Pages(BaseHTTPRequestHandler):
    """Serves the page as the service does, without the service."""

    def __init__(self, page: str, *given: Any) -> None:
        self.page = page
        super().__init__(*given)

    def do_GET(self) -> None:
        name = self.path.removeprefix("/verify").removeprefix("/")
        try:
            text = pages.asset(name) if name else self.page
        except KeyError:
            self.send_error(404)
            return
        kind = (
            "text/html"
            if not name
            else "text/css"
            if name == pages.STYLE
            else "text/javascript"
        )
        self.send_response(200)
        self.send_header("content-type", f"{kind}; charset=utf-8")
        self.send_header("content-security-policy", pages.POLICY)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(page: str) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Pages, page)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/verify"
        finally:
            server.shutdown()
            thread.join()


def test_the_served_page_sends_nothing(certified: tuple[Certified, Path], browser: Any) -> None:
    found, directory = certified
    context = browser.new_context(locale="en-US")
    with serving(pages.served(found.log.vkey, public_pem(found.issuer), "/verify")) as address:
        tab = context.new_page()
        tab.goto(address)
        asked: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        tab.set_input_files("#file", str(directory / "bundle.json"))
        assert verdict(tab) == "The certificate is authentic."
        assert asked == []
        # Even a script of the page's own could not: the policy forbids it.
        refused = tab.evaluate("fetch('/verify').then(() => 'sent', () => 'refused')")
        assert refused == "refused"
    context.close()


def test_axe_finds_nothing(certified: tuple[Certified, Path], browser: Any) -> None:
    found, directory = certified
    document = certificate_html(Sheet.of(found.bundle, found.verify(), PAGE), texts("fr"))
    (directory / "document.html").write_text(document, encoding="utf-8")
    phone = {"width": 360, "height": 800}
    # The check itself is a script that the page's policy would forbid.
    context = browser.new_context(bypass_csp=True, viewport=phone)
    tab = context.new_page()
    tab.goto(f"file://{directory}/verify.html")
    accessible.check(tab)
    tab.set_input_files("#file", str(directory / "bundle.json"))
    verdict(tab)
    accessible.check(tab)
    tab.goto(f"file://{directory}/document.html")
    accessible.check(tab)
    context.close()


BOTH_KEYS = f"{CERTIFIED.log.vkey}\n{LOG_TOO.verifier.vkey}"


def check_that_both_keys_must_sign(tab: Any, tmp_path: Path) -> None:
    for name, data, words in (
        ("one.json", CERTIFIED.bundle, "once with each of both keys"),
        ("both.json", cosigned(LOG_TOO), "Ed25519 and ML-DSA-44 by"),
    ):
        (tmp_path / name).write_bytes(data)
        tab.set_input_files("#file", str(tmp_path / name))
        tab.wait_for_function("w => document.body.innerText.includes(w)", arg=words)
    assert verdict(tab) == "The certificate is authentic."


def test_the_logs_second_key_is_required_where_the_service_fills_it_in(
    opened: Open, tmp_path: Path
) -> None:
    with serving(pages.served(BOTH_KEYS, public_pem(CERTIFIED.issuer), "/verify")) as address:
        check_that_both_keys_must_sign(opened(address), tmp_path)


def test_the_logs_second_key_is_required_where_it_is_given(
    opened: Open, tmp_path: Path
) -> None:
    page = pages.alone(BOTH_KEYS, public_pem(CERTIFIED.issuer))
    (tmp_path / "verify.html").write_text(page, encoding="utf-8")
    tab = opened(f"file://{tmp_path}/verify.html")
    check_that_both_keys_must_sign(tab, tmp_path)
    tab.fill("#log-key", f"{BOTH_KEYS}\n{LOG_TOO.verifier.vkey}")
    tab.click("button")
    tab.wait_for_function("() => document.body.innerText.includes('two keys at most')")
