"""People ask by mail, an officer decides in the console: a running service, up to the report."""

import csv
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from PIL import Image
from redis import Redis
from sqlalchemy import MetaData, select

from lethe.catalogue import NOTICES
from models.database.session import make_engine
from tests.app.intake.people import Mailbox, mail_server
from tests.app.notices.receiver import Receiver, receiving
from tests.browser.chromium import DRIVEN
from tests.e2e.harness import Processes, until
from tests.e2e.test_own_data import customers
from tests.servers import free_port

pytestmark = DRIVEN

KEPT, GONE = "customer8@example.org", "customer7@example.org"
NAME = "Zebedee Quuxley"  # whom the officer's note is about
PLANTED = (b"example.org", b"customer7", b"customer8", b"zebedee", b"quuxley")


@dataclass
class Desk:
    """A running service, the pages of a person and of an officer, and what they asked for."""

    service: Processes
    box: Mailbox
    receiver: Receiver
    person: Any
    officer: Any
    urls: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def watch(self, tab: Any) -> None:
        """Note the addresses that a page asks for, and what it reports as wrong."""
        tab.on("request", lambda request: self.urls.append(request.url))
        tab.on("console", lambda message: self.wrong.append(message.text))
        tab.on("pageerror", lambda error: self.wrong.append(str(error)))

    def ask(self, email: str) -> str:
        """Ask on the intake page and prove the address; return the code of the case."""
        tab, before = self.person, len(self.box.codes)
        tab.goto(f"{self.service.base_url}/intake")
        tab.fill("#email", email)
        tab.check("#mail-gdpr")
        tab.check("#mail-sure")
        shot(tab, "intake-ask", full_page=True)
        tab.click("text=Send me a code")
        tab.wait_for_selector("#code")
        until(lambda: len(self.box.codes) > before, "the code", self.service.api)
        tab.fill("#code", self.box.code())
        tab.click("text=Confirm and send my request")
        tab.wait_for_selector("#case-code")
        return str(tab.inner_text("#case-code"))

    def open_waiting(self) -> None:
        """Open, in the console, the one case that waits for a decision."""
        self.officer.goto(f"{self.service.base_url}/console?state=awaiting-review")
        (row,) = self.officer.locator("tbody th a").all()
        row.click()

    def decide(self, action: str, reason: str = "") -> None:
        """Confirm a decision on the page of the case that is open."""
        self.officer.click(f".actions >> text={action}…")
        if reason:
            self.officer.check(f"#reason-{reason}")
        self.officer.click("main form button")
        self.officer.wait_for_url("**/console/cases/*")

    def follow(self, code: str) -> str:
        """Open the page on which a person follows their case; return what it says."""
        tab = self.person
        tab.goto(f"{self.service.base_url}/intake/case")
        tab.fill("#code", code)
        tab.click("text=Show my request")
        tab.wait_for_selector("#case-code")
        return str(tab.inner_text("main"))


def shot(tab: Any, name: str, **how: Any) -> None:
    """Renew a picture of the documentation, if `make screenshots` asks for it.

    tab: a page, or a part of one. how: of a page, that it is shown whole.
    """
    if folder := os.environ.get("LETHE_TEST_SCREENSHOTS"):
        path = Path(folder) / f"{name}.png"
        tab.screenshot(path=str(path), **how)
        with Image.open(path) as whole:
            few = whole.convert("RGB").quantize(64)  # a tenth of the bytes
        few.save(path, optimize=True)


def saved(tab: Any, click: str, path: Path) -> bytes:
    """Click on what downloads a file; return what it holds."""
    with tab.expect_download() as waiting:
        tab.click(click)
    waiting.value.save_as(path)
    return path.read_bytes()


@pytest.fixture
def desk(processes: Processes, browser: Any, tmp_path: Path) -> Iterator[Desk]:
    """A service with a model that knows the two people, whose cases are reviewed."""
    with mail_server() as box, receiving() as receiver:
        processes.port = free_port()
        processes.more = {
            "LETHE_DECIDE": "review",
            "LETHE_INTAKE": "true",
            "LETHE_SMTP_URL": box.url,
            "LETHE_MAIL_FROM": "privacy@desk.example",
            "LETHE_PUBLIC_URL": f"http://127.0.0.1:{processes.port}",
            "LETHE_WEBHOOK_ALLOW": "127.0.0.1",
        }
        printed = processes.cli("token", "new", "--scope", "officer", "--name", "dpo").stdout
        processes.start_api()
        processes.start_worker()
        processes.more |= {"LETHE_TOKEN": processes.token, "LETHE_URL": processes.base_url}
        customers(tmp_path / "customers.parquet")
        processes.cli(
            *("model", "register", "ridge", str(tmp_path / "customers.parquet")),
            *("--ref", "churn"),
            *("--label", "churned", "--record-id", "id", "--client", "region"),
            *("--person", "email=email", "--features", "f_*", "--penalty", "10"),
        )
        with processes.operator() as operator:
            operator.add_webhook({"url": receiver.url, "events": list(NOTICES)})
        contexts = [
            browser.new_context(locale="en-US", accept_downloads=True) for _ in range(2)
        ]
        person, officer = (context.new_page() for context in contexts)
        made = Desk(processes, box, receiver, person, officer)
        made.watch(person)
        made.watch(officer)
        officer.goto(f"{processes.base_url}/console/sign-in")
        officer.fill("#token", printed.split()[-1])
        officer.click("main button")
        officer.wait_for_url("**/console")
        yield made
        for context in contexts:
            context.close()


def test_from_a_mail_address_to_the_report(desk: Desk, tmp_path: Path) -> None:
    officer, person = desk.officer, desk.person
    refused = desk.ask(KEPT)
    desk.open_waiting()
    officer.fill("#text", f"{NAME} has a contract")
    officer.click("text=Add the note")
    desk.decide("Refuse", "legal-obligation")
    assert NAME in officer.inner_text("main")
    assert "You may complain to a supervisory authority" in desk.follow(refused)

    code = desk.ask(GONE)
    officer.goto(f"{desk.service.base_url}/console")
    shot(officer, "console-queue", full_page=True)
    desk.open_waiting()
    desk.decide("Extend the deadline", "complexity")
    shot(officer, "console-case", full_page=True)
    assert "We need more time." in desk.follow(code)
    desk.decide("Approve")

    def certified() -> bool:
        person.click("text=Update this page")
        return "confirmed by a certificate" in person.inner_text("main")

    until(certified, "the certificate", desk.service.worker)
    shot(person, "intake-case", full_page=True)
    pdf = saved(person, "text=Save it as PDF", tmp_path / "certificate.pdf")
    assert pdf.startswith(b"%PDF-")
    bundle = saved(person, "button:has-text('Save the file')", tmp_path / "certificate.json")
    saved(person, "button:has-text('Save the receipt')", tmp_path / "receipt.json")
    person.click("text=Check a certificate yourself")
    person.wait_for_url("**/verify")
    for file in ("certificate.json", "certificate.pdf"):
        person.set_input_files("#file", str(tmp_path / file))
        person.wait_for_selector(".verdict.good")
        person.reload()
    officer.reload()
    officer.click("tbody a[href*=certificates]")
    officer.wait_for_selector("#checks")
    shot(officer, "console-certificate", full_page=True)
    assert saved(officer, "a[href$=bundle]", tmp_path / "officer.json") == bundle

    officer.click("nav >> text=Reports")
    officer.fill("#from", "2000-01-01")
    officer.fill("#to", "2099-12-31")
    for form in ("csv", "pdf", "json"):
        officer.select_option("#format", form)
        saved(officer, "main form button", tmp_path / f"report.{form}")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF-")
    with (tmp_path / "report.csv").open(newline="") as read:
        assert len(list(csv.reader(read))) > 1
    keys = desk.service.directory / "data" / "keys"
    vkey = str(keys / "log.vkey")
    verified = desk.service.cli(
        *("report", "verify", str(tmp_path / "report.json"), "--log-key", vkey),
        *("--log", f"{desk.service.base_url}/v1/log"),
    )
    desk.service.cli(
        *("case", "verify-receipt", str(tmp_path / "receipt.json"), "--log-key", vkey),
        *("--identity", f"email={GONE}"),
    )
    desk.service.cli(
        *("certificate", "verify", str(tmp_path / "certificate.json"), "--keys", str(keys))
    )
    assert verified.stdout
    assert desk.wrong == []
    nothing_leaks(desk, tmp_path)


def nothing_leaks(desk: Desk, tmp_path: Path) -> None:
    """Look for the planted address and name in everything that others can see, or a thief."""
    service = desk.service
    header = {"authorization": f"Bearer {service.token}"}
    metrics = httpx2.get(f"{service.base_url}/metrics", headers=header).content
    places = {
        "an address of a page": "\n".join(desk.urls).encode(),
        "metrics": metrics,
        **{
            f"notice {place}": json.dumps(headers).encode() + body
            for place, (headers, body) in enumerate(desk.receiver.seen)
        },
        **{
            str(path): path.read_bytes()
            for path in service.directory.rglob("*")
            if path.is_file()
        },
        **{path.name: path.read_bytes() for path in tmp_path.glob("report.*")},
    }

    engine = make_engine(service.settings.resolved_database_url)
    tables = MetaData()
    tables.reflect(engine)
    with engine.connect() as connection:
        for table in tables.sorted_tables:
            rows = connection.execute(select(table)).all()
            places[f"table {table.name}"] = "\n".join(
                str(bytes(cell)) if isinstance(cell, bytes | memoryview) else str(cell)
                for row in rows
                for cell in row
            ).encode()
    engine.dispose()
    if service.broker_url.startswith("redis"):
        with Redis.from_url(service.broker_url) as broker:
            for key in broker.scan_iter():
                places[f"redis {key!r}"] = key + (broker.dump(key) or b"")
    assert len(desk.receiver.seen) > 3
    assert b"lethe_" in metrics
    for place, content in places.items():
        for planted in PLANTED:
            assert planted not in content.lower(), (planted, place)
