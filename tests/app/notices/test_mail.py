"""Mail: what a real SMTP server on this machine receives, and what is refused."""

import email.policy
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app.notices import mail
from app.notices.deliver import LEASE_S
from app.notices.mail import MailError, Message, send
from app.settings import Settings, SettingsError
from tests.servers import free_port

FROM = "lethe@example.org"
TO = "marie.mueller@example.com"


class Inbox:
    """What the server took, and the reply that it gives to a recipient."""

    def __init__(self, reply: str = "250 OK") -> None:
        self.taken: list[Any] = []
        self.tls: list[bool] = []
        self.users: list[str] = []
        self.reply = reply

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:  # fmt: skip  # noqa: N802
        if self.reply.startswith("250"):
            envelope.rcpt_tos.append(address)
        return self.reply

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        self.taken.append(envelope)
        self.tls.append(session.ssl is not None)
        return "250 OK"

    def authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:  # fmt: skip
        assert isinstance(data, LoginPassword)
        self.users.append(data.login.decode())
        return AuthResult(success=data.password == b"p@ss:word", handled=False)


@pytest.fixture
def authority(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for localhost, and the server's context."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "localhost.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = tmp_path / "localhost.key"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem, private)
    return pem, context


@contextmanager
def server(inbox: Inbox, **options: Any) -> Iterator[int]:
    port = free_port()
    controller = Controller(inbox, hostname="127.0.0.1", port=port, **options)
    controller.start()
    try:
        yield port
    finally:
        controller.stop()


def settings_for(url: str) -> Settings:
    return Settings(smtp_url=url, mail_from=FROM)


MESSAGE = Message(TO, "Antrag eingegangen – Vorgang 1", "Guten Tag,\n\nIhr Antrag …\n")


def test_a_message_arrives_as_it_was_written() -> None:
    inbox = Inbox()
    with server(inbox) as port:
        send(settings_for(f"smtp+plain://127.0.0.1:{port}"), MESSAGE)
    [envelope] = inbox.taken
    assert envelope.mail_from == FROM
    assert envelope.rcpt_tos == [TO]
    read = email.message_from_bytes(envelope.content, policy=email.policy.default)
    assert read["To"] == TO
    assert read["Subject"] == MESSAGE.subject
    assert read["Auto-Submitted"] == "auto-generated"
    assert read["Message-ID"].endswith("@example.org>")
    assert read.get_content().replace("\r\n", "\n") == MESSAGE.text


def test_starttls_and_login_come_before_the_message(
    authority: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    pem, context = authority
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    inbox = Inbox()
    asks = {"tls_context": context, "require_starttls": True, "auth_required": True}
    with server(inbox, authenticator=inbox.authenticate, **asks) as port:
        send(settings_for(f"smtp://service:p%40ss%3Aword@localhost:{port}"), MESSAGE)
        with pytest.raises(MailError, match="refused the login") as caught:
            send(settings_for(f"smtp://service:wrong@localhost:{port}"), MESSAGE)
    assert inbox.tls == [True]
    assert set(inbox.users) == {"service"}
    assert "wrong" not in str(caught.value)


def test_a_server_without_starttls_gets_nothing() -> None:
    inbox = Inbox()
    with server(inbox) as port, pytest.raises(MailError, match="does not offer"):
        send(settings_for(f"smtp://localhost:{port}"), MESSAGE)
    assert inbox.taken == []


def test_a_certificate_of_nobody_known_is_refused(
    authority: tuple[Path, ssl.SSLContext],
) -> None:
    inbox = Inbox()
    with (
        server(inbox, tls_context=authority[1], require_starttls=True) as port,
        pytest.raises(MailError, match="TLS with the mail server failed"),
    ):
        send(settings_for(f"smtp://localhost:{port}"), MESSAGE)
    assert inbox.taken == []


@pytest.mark.parametrize(
    ("reply", "permanent"),
    [(f"550 no such user {TO}", True), (f"451 try later {TO}", False)],
)
def test_a_refused_recipient_is_named_by_code_alone(reply: str, permanent: bool) -> None:
    with (
        server(Inbox(reply)) as port,
        pytest.raises(MailError, match="refused the recipient") as caught,
    ):
        send(settings_for(f"smtp+plain://127.0.0.1:{port}"), MESSAGE)
    assert caught.value.permanent is permanent
    assert TO not in caught.value.detail
    assert caught.value.__cause__ is None


def test_nothing_that_listens_is_an_error_that_can_be_tried_again() -> None:
    with server(Inbox()) as port:
        pass
    with pytest.raises(MailError, match="did not answer") as caught:
        send(settings_for(f"smtp+plain://127.0.0.1:{port}"), MESSAGE)
    assert not caught.value.permanent


@contextmanager
def greeting(
    pieces: Iterable[bytes], pause_s: float = 0.0
) -> Iterator[tuple[int, list[bytes]]]:
    """A server that greets piece by piece, and then takes what it is sent: commands and text."""
    heard = list[bytes]()

    def serve() -> None:
        with suppress(OSError), listener.accept()[0] as link, link.makefile("rb") as lines:
            for piece in pieces:
                link.sendall(piece)
                time.sleep(pause_s)
            text = False
            for line in lines:
                heard.append(line)
                text = line == b"data\r\n" or (text and line != b".\r\n")
                if not text:
                    link.sendall(b"250 OK\r\n")
                elif line == b"data\r\n":
                    link.sendall(b"354 go on\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], heard
        thread.join(30)


def test_a_server_that_answers_is_sent_the_message() -> None:
    with greeting([b"220 ready\r\n"]) as (port, heard):
        send(settings_for(f"smtp+plain://127.0.0.1:{port}"), MESSAGE)
    assert b".\r\n" in heard


def test_a_server_that_answers_byte_by_byte_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would hold the thread that sends all notices, and each byte ends a wait."""
    monkeypatch.setattr(mail, "WHOLE_S", 0.2)
    slowly = (bytes([one]) for one in b"220 " + b"x" * 100 + b"\r\n")
    with (
        greeting(slowly, 0.02) as (port, heard),
        pytest.raises(MailError, match="did not answer"),
    ):
        send(settings_for(f"smtp+plain://127.0.0.1:{port}"), MESSAGE)
    assert heard == []


def test_a_server_that_answers_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "MOST_ANSWERS", 1000)
    endless = [*([b"220-more\r\n"] * 1000), b"220 ready\r\n"]
    with greeting(endless) as (port, heard), pytest.raises(MailError, match="did not answer"):
        send(settings_for(f"smtp+plain://127.0.0.1:{port}"), MESSAGE)
    assert heard == []


def test_an_attempt_is_over_before_another_sender_may_begin() -> None:
    assert mail.WHOLE_S < LEASE_S


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
def test_a_password_that_smtplib_cannot_send_is_said() -> None:
    inbox = Inbox()
    asks = {"auth_required": True, "auth_require_tls": False}
    with (
        server(inbox, authenticator=inbox.authenticate, **asks) as port,
        pytest.raises(MailError, match="not ASCII") as caught,
    ):
        send(settings_for(f"smtp+plain://service:p%C3%A4ss@127.0.0.1:{port}"), MESSAGE)
    assert "pä" not in caught.value.detail


def test_without_a_server_nothing_is_sent() -> None:
    with pytest.raises(MailError, match="LETHE_SMTP_URL"):
        send(Settings(), MESSAGE)


INJECTED = [
    ("line break in the address", "a@example.org\nBcc: b@example.org", "subject"),
    ("two addresses", "a@example.org,b@example.org", "subject"),
    ("a name", "A <a@example.org>", "subject"),
    ("two signs", "a@b@example.org", "subject"),
    ("two addresses in an encoded word", "a@=?utf-8?q?b.de=2Cc=40d.de?=", "subject"),
    ("another spelling of an address", "=?utf-8?q?a?=nn@example.org", "subject"),
    ("no domain", "a@", "subject"),
    ("no address", "", "subject"),
    ("too long", "a" * 250 + "@b.de", "subject"),
    ("line break in the subject", "a@example.org", "subject\r\nBcc: b@example.org"),
    ("no subject", "a@example.org", ""),
]


@pytest.mark.parametrize(("to", "subject"), [case[1:] for case in INJECTED], ids=[case[0] for case in INJECTED])  # fmt: skip
def test_headers_cannot_be_injected(to: str, subject: str) -> None:
    with pytest.raises(MailError) as caught:
        Message(to, subject, "text")
    assert not to or to not in caught.value.detail


WRONG = [
    ("another scheme", {"smtp_url": "http://mail.example.org"}),
    ("no host", {"smtp_url": "smtp://"}),
    ("no port", {"smtp_url": "smtp://mail.example.org:99999"}),
    ("a password with a number sign", {"smtp_url": "smtp://user:12#M9d@mail.example.org:587"}),
    ("a password with a question mark", {"smtp_url": "smtp://user:12?M9d@mail.example.org"}),
    ("a password with a slash", {"smtp_url": "smtp://user:12/M9d@mail.example.org"}),
    ("no sender", {"smtp_url": "smtp://mail.example.org", "mail_from": ""}),
    ("no address", {"smtp_url": "smtp://mail.example.org", "mail_from": "x\ny@example.org"}),
]


@pytest.mark.parametrize("values", [case[1] for case in WRONG], ids=[case[0] for case in WRONG])
def test_settings_that_cannot_work_are_refused_at_the_start(values: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"LETHE_(SMTP_URL|MAIL_FROM)"):
        Settings(**{"mail_from": FROM, **values})


def test_production_sends_unencrypted_only_to_the_same_machine() -> None:
    good = {"environment": "production", "origin": "a.example/log", "public_url": "https://a.example", "data_dir": "/a", "mail_from": FROM}  # fmt: skip
    assert Settings(**good, smtp_url="smtp+plain://127.0.0.1:25")
    with pytest.raises(SettingsError, match="unencrypted"):
        Settings(**good, smtp_url="smtp+plain://mail.example.org")
    with pytest.raises(SettingsError, match="placeholder"):
        Settings(**good, smtp_url="smtp://user:changeme@mail.example.org")
