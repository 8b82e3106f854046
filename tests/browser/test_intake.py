"""The intake page in a browser: ask, prove, follow, verify, withdraw; with axe and without JavaScript."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from app.ledger.sequencer import Ledger
from app.main import create_app
from app.service.intake import following
from app.settings import Settings
from lethe.certificates.intake_receipt import check_receipt
from lethe.signing.keys import load_public_key
from tests.app.intake.people import Mailbox, mail_server
from tests.app.intake.test_asking import approve, case_of
from tests.browser import accessible
from tests.browser.chromium import DRIVEN
from tests.installation import Installation, install
from tests.servers import free_port
from tests.workers.jobs.desk.test_people import ANN, BOB, EVE, ready

pytestmark = DRIVEN
PHONE = {"width": 360, "height": 800}


@pytest.fixture
def box() -> Iterator[Mailbox]:
    with mail_server() as made:
        yield made


@pytest.fixture
def site(
    settings: Settings, ledger: Ledger, box: Mailbox
) -> Iterator[tuple[str, Installation]]:
    """A service on this machine that knows Ann and Bob, and its address."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    changes = {
        "intake": True,
        "intake_kinds": "customer",
        "smtp_url": box.url,
        "mail_from": "privacy@example.com",
        "decide": "review",
        "public_url": address,
    }
    with install(Settings(**{**settings.model_dump(), **changes})) as made:
        ready(made, "churn", r99=EVE)
        config = uvicorn.Config(
            create_app(made.services), port=port, log_config=None, lifespan="off"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            while not server.started:
                thread.join(0.05)
                assert thread.is_alive()
            yield address, made
        finally:
            server.should_exit = True
            thread.join()


def fill_in(tab: Any, address: str, email: str) -> None:
    """Fill in the first page and send it."""
    tab.goto(f"{address}/intake")
    tab.fill("#email", email)
    tab.check("#mail-gdpr")
    tab.check("#mail-sure")
    tab.click("text=Send me a code")


def opened(tab: Any, address: str, email: str, box: Mailbox) -> str:
    """Ask and confirm; return the code of the case."""
    fill_in(tab, address, email)
    tab.wait_for_selector("#code")
    tab.fill("#code", box.code())
    tab.click("text=Confirm and send my request")
    tab.wait_for_selector("#case-code")
    return str(tab.inner_text("#case-code"))


def test_a_person_asks_and_verifies_the_certificate(
    site: tuple[str, Installation], browser: Any, box: Mailbox, tmp_path: Path
) -> None:
    address, made = site
    wrong: list[str] = []
    asked: list[str] = []
    context = browser.new_context(locale="en-US", viewport=PHONE, accept_downloads=True)
    tab = context.new_page()
    tab.on("console", lambda message: wrong.append(message.text))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    fill_in(tab, address, ANN)
    tab.wait_for_function(
        "() => document.querySelector('#key').innerText.includes('will sign')"
    )
    tab.fill("#code", box.code())
    tab.click("text=Confirm and send my request")
    tab.wait_for_selector("#case-code")
    code = tab.inner_text("#case-code")
    tab.reload()  # sends the form again
    tab.wait_for_selector("#case-code")
    assert tab.inner_text("#case-code") == code
    with tab.expect_download() as waiting:
        tab.click("button:has-text('Save the receipt')")
    waiting.value.save_as(tmp_path / "receipt.json")
    receipt = check_receipt(
        (tmp_path / "receipt.json").read_bytes(), made.services.ledger.verifier
    )
    assert receipt.record.signed is not None
    assert receipt.record.statement.service == address
    tab.goto("about:blank")
    tab.goto(f"{address}/intake/case#{code}")  # as the picture has it
    tab.wait_for_selector("#case-code")
    assert code not in tab.url
    assert "A member of our staff has to review it first." in tab.inner_text("main")
    approve(made, case_of(made).ref)
    tab.click("text=Update this page")
    tab.wait_for_selector("text=The deletion is confirmed by a certificate.")
    with tab.expect_download() as waiting:
        tab.click("button:has-text('Save the file')")
    waiting.value.save_as(tmp_path / "certificate.json")
    tab.click("text=Check a certificate yourself")
    tab.wait_for_url("**/verify")
    tab.set_input_files("#file", str(tmp_path / "certificate.json"))
    tab.wait_for_selector(".verdict.good")
    assert not any(code in one or "ann" in one for one in asked)
    assert all(one.startswith((address, "about:", "blob:")) for one in asked)
    assert wrong == []
    context.close()


NO_ED25519 = """
const make = crypto.subtle.generateKey.bind(crypto.subtle);
crypto.subtle.generateKey = (kind, ...rest) =>
  kind.name === "Ed25519" ? Promise.reject(new Error("unknown")) : make(kind, ...rest);
"""
NO_KEYS = "crypto.subtle.generateKey = () => Promise.reject(new Error('none'));"


@pytest.mark.parametrize(
    ("script", "curve"), [(NO_ED25519, EllipticCurvePublicKey), (NO_KEYS, None)]
)
def test_browsers_that_know_less_sign_otherwise_or_not_at_all(
    site: tuple[str, Installation], browser: Any, box: Mailbox, script: str, curve: Any
) -> None:
    address, made = site
    context = browser.new_context(locale="en-US")
    context.add_init_script(script)
    tab = context.new_page()
    fill_in(tab, address, ANN)
    said = "will sign" if curve else "does not sign"
    tab.wait_for_function("w => document.querySelector('#key').innerText.includes(w)", arg=said)
    tab.fill("#code", box.code())
    tab.click("text=Confirm and send my request")
    tab.wait_for_selector("#case-code")
    record = following.receipt(made.services, case_of(made).ref)
    signed = check_receipt(record, made.services.ledger.verifier).record.signed
    if curve is None:
        assert signed is None
    else:
        assert signed is not None
        assert isinstance(load_public_key(signed.key.encode()), curve)
    context.close()


def test_it_works_without_javascript(
    site: tuple[str, Installation], browser: Any, box: Mailbox
) -> None:
    address, made = site
    context = browser.new_context(locale="en-US", viewport=PHONE, java_script_enabled=False)
    tab = context.new_page()
    code = opened(tab, address, BOB, box)
    tab.goto(f"{address}/intake/case")
    tab.fill("#code", code.lower())
    tab.click("text=Show my request")
    tab.click("summary")
    tab.click("text=Yes, I withdraw my request")
    assert "You have withdrawn your request." in tab.inner_text("main")
    made.check()
    context.close()


def test_axe_finds_nothing(site: tuple[str, Installation], browser: Any, box: Mailbox) -> None:
    address, made = site
    context = browser.new_context(bypass_csp=True, viewport=PHONE, locale="en-US")
    tab = context.new_page()

    tab.goto(f"{address}/intake?language=de")
    tab.click("summary")
    accessible.check(tab)
    tab.goto(f"{address}/intake/case?language=fr")
    accessible.check(tab)
    fill_in(tab, address, ANN)
    tab.wait_for_selector("#code")
    accessible.check(tab)
    tab.fill("#code", "00000000")
    tab.click("text=Confirm and send my request")
    tab.wait_for_selector("#wrong")
    accessible.check(tab)
    tab.fill("#code", box.code())
    tab.click("text=Confirm and send my request")
    tab.wait_for_selector("#case-code")
    tab.click("summary")
    accessible.check(tab)
    approve(made, case_of(made).ref)
    tab.click("text=Update this page")
    tab.wait_for_selector("text=Save it as PDF")
    accessible.check(tab)
    tab.goto(f"{address}/intake/case")
    tab.fill("#code", "x")
    tab.click("text=Show my request")
    tab.wait_for_selector("[role=alert]")
    accessible.check(tab)
    context.close()
