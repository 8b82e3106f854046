"""A person with a browser, and the mail server that their codes arrive at."""

import email
import email.policy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from html.parser import HTMLParser
from typing import Any

from aiosmtpd.controller import Controller
from httpx2 import Response
from starlette.testclient import TestClient

from tests.servers import free_port

CODE = re.compile(r"\b(\d{4}) (\d{4})\b")
VOID = ("meta", "link", "input", "br")


@dataclass
class Mailbox:
    """The mails that a server on this machine took. refuse: it takes none."""

    url: str = ""
    refuse: bool = False
    mails: list[EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        """Take a mail."""
        if self.refuse:
            return "451 not now"
        found = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert isinstance(found, EmailMessage)
        self.mails.append(found)
        return "250 OK"

    @property
    def codes(self) -> list[str]:
        """The codes that were mailed, oldest first; notices of a case have none."""
        found = (CODE.search(mail.get_content()) for mail in self.mails)
        return ["".join(match.groups()) for match in found if match is not None]

    def code(self) -> str:
        """The newest code."""
        return self.codes[-1]


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    """Run a mail server."""
    box, port = Mailbox(), free_port()
    box.url = f"smtp+plain://127.0.0.1:{port}"
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield box
    finally:
        controller.stop()


class Page(HTMLParser):
    """A page: its text, its forms by their address, and what no strict policy would run."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response, self.text = response, ""
        self.forms: list[tuple[str, dict[str, str]]] = []
        self.links: list[str] = []
        self.statement = ""
        self.open: list[str] = []
        self.inline: list[str] = []
        assert response.headers["content-type"] == "text/html; charset=utf-8", response.text
        policy = response.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert response.headers["cache-control"] == "no-store"
        self.feed(response.text)
        assert self.open == []
        assert self.inline == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element."""
        values = {name: value or "" for name, value in attrs}
        if tag not in VOID:
            self.open.append(tag)
        self.inline += [name for name in values if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and "src" not in values):
            self.inline.append(tag)
        if tag == "form":
            self.forms.append((values["action"], {}))
            self.statement = values.get("data-statement", self.statement)
        if tag == "a":
            self.links.append(values["href"])
        if tag == "input" and values.get("type") == "hidden":
            self.forms[-1][1][values["name"]] = values["value"]

    def handle_endtag(self, tag: str) -> None:
        """Close an element."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Take text."""
        self.text += data

    def fields(self, action: str, **of: str) -> dict[str, str]:
        """Return the hidden fields of a form that is sent to an address and has these."""
        return next(
            dict(fields)
            for address, fields in self.forms
            if address == action and of.items() <= fields.items()
        )

    @property
    def case_code(self) -> str:
        """The code of the case that the page shows."""
        return self.fields("/intake/withdraw" if self.can_withdraw else "/intake/file")["code"]

    @property
    def can_withdraw(self) -> bool:
        """Whether the page offers it."""
        return any(address == "/intake/withdraw" for address, _ in self.forms)


class Visitor:
    """A browser of its own, without JavaScript."""

    def __init__(self, http: TestClient, language: str = "en") -> None:
        self.http = TestClient(http.app)
        self.headers = {"origin": "http://testserver", "accept-language": language}

    def get(self, address: str) -> Page:
        """Read a page."""
        return Page(self.http.get(address, headers=self.headers))

    def send(self, address: str, fields: dict[str, str], **headers: str) -> Response:
        """Send a form."""
        return self.http.post(address, data=fields, headers=self.headers | headers)

    def ask(self, value: str, **changes: str) -> Response:
        """Fill in the first page."""
        hidden = self.get("/intake").fields("/intake/ask", kind="email")
        hidden |= {"value": value, "regulation": "gdpr", "sure": "yes"} | changes
        return self.send("/intake/ask", hidden)

    def confirm(self, page: Response, code: str, **changes: str) -> Response:
        """Fill in the second page."""
        hidden = Page(page).fields("/intake/confirm")
        return self.send("/intake/confirm", hidden | {"code": code} | changes)

    def open(self, value: str, box: Mailbox, **changes: str) -> Page:
        """Ask and confirm."""
        page = self.ask(value, **changes)
        assert page.status_code == 200, page.text
        answer = self.confirm(page, box.code())
        assert answer.status_code == 200, answer.text
        return Page(answer)

    def follow(self, code: str, address: str = "/intake/case", **more: str) -> Response:
        """Send a form with the code of a case."""
        hidden = self.get("/intake/case").fields("/intake/case")
        return self.send(address, hidden | {"code": code} | more)
