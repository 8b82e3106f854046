"""Mail by SMTP (RFC 5321): one message to one address, over TLS.

`LETHE_SMTP_URL` says how:

- `smtp://user:password@host:587` requires STARTTLS (RFC 3207) before anything else is sent;
- `smtps://user:password@host:465` is TLS from the start (RFC 8314);
- `smtp+plain://host:25` is unencrypted. In production only to the same machine.

Certificates are checked against the system's authorities (`SSL_CERT_FILE` adds a private one).
No error repeats an address: errors are logged.
"""

import io
import smtplib
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from typing import Any
from urllib.parse import unquote, urlsplit

from app.settings import Settings
from lethe.errors import LetheError
from models.database.types import utcnow

TIMEOUT_S = 15.0  # to connect, and for each piece of an answer
WHOLE_S = 45.0  # for all answers to one message
MOST_ANSWERS = 64 * 1024  # bytes of them
MAX_ADDRESS = 254  # RFC 5321 section 4.5.3.1.3, without the angle brackets
MAX_SUBJECT = 200
PORTS = {"smtp": 587, "smtps": 465, "smtp+plain": 25}


class MailError(LetheError):
    """A message was not accepted by the mail server, or could not be built.

    `permanent`: sending it again would be refused again.
    """

    slug, title, status = "mail-failed", "The mail was not sent", 503
    retry_after = 60

    def __init__(self, detail: str, *, permanent: bool = False) -> None:
        super().__init__(detail)
        self.permanent = permanent


@dataclass(frozen=True, slots=True)
class Message:
    """Plain text for one recipient.

    Raises MailError if the address is invalid, or the subject is not one printable line.
    """

    to: str
    subject: str
    text: str

    def __post_init__(self) -> None:
        if not is_address(self.to):
            raise MailError("the recipient is not one e-mail address", permanent=True)
        # French has no-break spaces, which Python does not count as printable.
        line = self.subject.replace("\N{NO-BREAK SPACE}", " ")
        if not 0 < len(line) <= MAX_SUBJECT or not line.isprintable():
            raise MailError(
                f"the subject is not one line of at most {MAX_SUBJECT} characters",
                permanent=True,
            )


def is_address(text: str) -> bool:
    """Return whether `text` is one bare address: no name, no list, no quoting, no control.

    Nor an encoded word (RFC 2047), which `EmailMessage` decodes: its text may be two addresses.
    """
    local, at, domain = text.rpartition("@")
    plain = text.isprintable() and not set(text) & set(' ,;:<>()[]"\\') and "=?" not in text
    return bool(local and at and domain and "@" not in local and plain) and (
        len(text) <= MAX_ADDRESS
    )


def is_configured(settings: Settings) -> bool:
    """Return whether this installation sends mail."""
    return bool(settings.smtp_url.get_secret_value())


def send(settings: Settings, message: Message) -> None:
    """Hand a message to the mail server; when this returns, the server is responsible for it.

    Raises MailError if it was not accepted, or no server is configured. If the connection was
    lost after the text was sent, the server may still have it.
    """
    composed = _compose(settings.mail_from, message)
    with _server(settings) as server:
        server.send_message(composed)


def check(settings: Settings) -> None:
    """Sign in to the mail server and send nothing. Raises MailError if it does not answer."""
    with _server(settings) as server:
        server.noop()


@contextmanager
def _server(settings: Settings) -> Iterator[smtplib.SMTP]:
    url = urlsplit(settings.smtp_url.get_secret_value())
    if not url.hostname:
        raise MailError("no mail server is configured: set LETHE_SMTP_URL and LETHE_MAIL_FROM")
    try:
        server = _connect(url.scheme, url.hostname, url.port or PORTS[url.scheme])
        try:
            if url.username:
                server.login(unquote(url.username), unquote(url.password or ""))
            yield server
        finally:
            with suppress(smtplib.SMTPException, OSError):
                server.quit()
    except (smtplib.SMTPException, OSError, UnicodeError) as error:
        raise _named(error) from None  # its text may repeat the address


class _Answers(io.RawIOBase):
    """The server's answers, up to a time and a size.

    A server that sends a byte now and then would keep the sender of all notices busy for ever,
    and its lease would pass to another sender, which sends the same message.
    """

    def __init__(self, link: socket.socket, until: float) -> None:
        self._link, self._until, self._left = link, until, MOST_ANSWERS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = self._until - time.monotonic()
        if seconds <= 0 or self._left <= 0:
            raise TimeoutError
        self._link.settimeout(min(seconds, TIMEOUT_S))
        got = self._link.recv_into(buffer)
        self._left -= got
        return got


class _Smtp(smtplib.SMTP):
    """A connection whose answers are bounded as a whole; smtplib bounds each wait for one."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self._until = time.monotonic() + WHOLE_S
        super().__init__(*given, **named)

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:  # also after STARTTLS
            self.file = io.BufferedReader(_Answers(self.sock, self._until))
        return super().getreply()


class _Smtps(_Smtp, smtplib.SMTP_SSL):
    """The same, with TLS from the start."""


def _connect(scheme: str, host: str, port: int) -> smtplib.SMTP:
    if scheme == "smtps":
        context = ssl.create_default_context()
        return _Smtps(host, port, timeout=TIMEOUT_S, context=context)
    server = _Smtp(host, port, timeout=TIMEOUT_S)
    if scheme == "smtp":
        try:
            server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
    return server


def _compose(sender: str, message: Message) -> EmailMessage:
    composed = EmailMessage()
    composed["From"] = sender
    composed["To"] = message.to
    composed["Subject"] = message.subject
    composed["Date"] = format_datetime(utcnow())
    composed["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2])
    composed["Auto-Submitted"] = "auto-generated"  # RFC 3834: no automatic answers
    composed.set_content(message.text)
    return composed


def _named(error: Exception) -> MailError:
    """Return a MailError for an SMTP error: with the reply's code, never its text."""
    match error:
        case smtplib.SMTPAuthenticationError():
            return MailError(
                f"the mail server refused the login (code {error.smtp_code}): check user and "
                "password of LETHE_SMTP_URL"
            )
        case smtplib.SMTPRecipientsRefused():
            codes = [code for code, _ in error.recipients.values()]
            return _refused("the recipient", max(codes))
        case smtplib.SMTPSenderRefused():
            return _refused("the sender LETHE_MAIL_FROM", error.smtp_code)
        case smtplib.SMTPResponseException():
            return _refused("the message", error.smtp_code)
        case smtplib.SMTPNotSupportedError():
            return MailError(
                "the mail server does not offer what is needed (STARTTLS, a login, or "
                "addresses beyond ASCII): use smtps://, or another server"
            )
        case UnicodeError():
            return MailError(
                "host, user or password of LETHE_SMTP_URL is not ASCII: choose another "
                "password, and write a host beyond ASCII as xn--…"
            )
        case ssl.SSLError():
            return MailError(
                "TLS with the mail server failed: check its certificate and name, or set "
                "SSL_CERT_FILE to its authority"
            )
    return MailError(
        "the mail server did not answer, or closed the connection: check host and port of "
        "LETHE_SMTP_URL and the server's log"
    )


def _refused(what: str, code: int) -> MailError:
    lasting = code >= 500  # RFC 5321 section 4.2.1: 5yz is permanent
    then = "see the server's log" if lasting else "it can be tried again"
    return MailError(f"the mail server refused {what} (code {code}): {then}", permanent=lasting)
