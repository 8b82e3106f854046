"""Nudges through the brokers: whole, of an opaque id only, and never in the way."""

import base64
import json
import os
import shutil
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu.exceptions import OperationalError
from redis import Redis

from app import dispatch
from app.dispatch import WAITING, Dispatcher, make_celery
from app.settings import Settings
from tests.app.notices.test_mail import authority  # noqa: F401 - a fixture
from tests.doubles.pauses import skip_pauses


@pytest.fixture
def settings(data_dir: Path) -> Settings:
    return Settings(data_dir=data_dir)


def messages(settings: Settings) -> list[Path]:
    return sorted((settings.data_dir / "broker").glob("*.msg"))


def sent(celery: Celery, *nudge: str) -> None:
    """Send one nudge and wait for it as a process that ends does."""
    dispatcher = Dispatcher(lambda: celery)
    dispatcher.nudge(*nudge)
    dispatcher.close()


def within(seconds: float, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_message_appears_whole(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    replace = os.replace

    def watch(source: Path, target: Path) -> None:
        assert not target.exists()
        seen.append(len(messages(settings)))
        json.loads(source.read_text())
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    sent(make_celery(settings), "job-1")
    assert seen[-1] == 0, "the message was visible before it was written"
    assert len(messages(settings)) == 1


def test_a_message_holds_the_job_and_nothing_else(settings: Settings) -> None:
    sent(make_celery(settings), "job-1", "verify")
    (message,) = messages(settings)
    content: dict[str, Any] = json.loads(message.read_text())
    assert content["headers"]["task"] == "lethe.verify"
    assert content["headers"]["argsrepr"] == "['job-1']"


def test_a_worker_reads_it(settings: Settings) -> None:
    celery = make_celery(settings)
    sent(celery, "job-1")
    with celery.connection_for_read() as connection:
        queue = connection.SimpleQueue("cpu")
        message = queue.get(timeout=5)
        assert message.headers["task"] == "lethe.execute"
        message.ack()
        queue.close()


def test_a_queue_that_nobody_serves_does_not_grow(
    settings: Settings, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "WAITING", 3)
    for number in range(8):
        sent(make_celery(settings), f"job-{number}", "execute", "gpu")
    assert [path.name.split(".")[1] for path in messages(settings)] == ["gpu"] * 3
    shared = settings.model_copy(update={"broker_url": redis_url})
    for number in range(8):
        sent(make_celery(shared), f"job-{number}", "execute", "gpu")
    with Redis.from_url(redis_url) as client:
        assert client.llen("gpu") == 3
        assert client.llen("cpu") == 0


def test_a_broker_that_is_gone_costs_nothing(
    data_dir: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_pauses(monkeypatch)
    gone = Settings(data_dir=data_dir, broker_url="redis://127.0.0.1:1/0")
    dispatcher = Dispatcher(lambda: make_celery(gone))
    dispatcher.nudge("job-1")
    within(10, lambda: "the sweep will" in caplog.text)
    with pytest.raises(Exception, match=r"refused|connect"):
        dispatcher.check()


ASKED = {str(uuid.UUID(int=number)): f"silo-{number % 2}" for number in range(3)}


def ask(settings: Settings, *, broken: bool = False) -> Celery:
    celery = make_celery(settings)
    if broken:
        shutil.rmtree(settings.data_dir / "broker")
    Dispatcher(lambda: celery).ask(ASKED, expires=60)
    return celery


def test_silos_are_sent_the_ids_of_rows_as_one_group_and_nothing_else(
    settings: Settings,
) -> None:
    ask(settings.model_copy(update={"silos": 2}))
    contents = [json.loads(message.read_text()) for message in messages(settings)]
    headers = [content["headers"] for content in contents]
    assert {header["task"] for header in headers} == {"lethe.answer"}
    assert len({header["group"] for header in headers}) == 1
    assert all(header["group"] and header["expires"] for header in headers)
    sent = {}
    for message, content in zip(messages(settings), contents, strict=True):
        args, kwargs, _ = json.loads(base64.b64decode(content["body"]))
        (row,) = args
        assert (kwargs, content["headers"]["argsrepr"]) == ({}, repr((row,)))
        sent[row] = message.name.split(".")[1]
    assert sent == ASKED


def test_routes_to_silos_are_there_before_anybody_asks(settings: Settings) -> None:
    make_celery(settings.model_copy(update={"silos": 2}))
    tables = sorted((settings.data_dir / "broker-control").glob("silo-*"))
    assert [json.loads(table.read_text()) for table in tables] == [
        [[table.stem, "", table.stem]] for table in tables
    ]
    assert [table.name for table in tables] == ["silo-0.exchange", "silo-1.exchange"]


@pytest.mark.parametrize("broker", ["files", "redis"])
def test_a_silo_reads_its_own_queue(
    data_dir: Path, broker: str, request: pytest.FixtureRequest
) -> None:
    url = "filesystem://" if broker == "files" else request.getfixturevalue("redis_url")
    celery = ask(Settings(data_dir=data_dir, broker_url=url, silos=2))
    with celery.connection_for_read() as connection:
        for silo in ("silo-0", "silo-1"):
            queue = connection.SimpleQueue(silo)
            for row in [row for row, name in ASKED.items() if name == silo]:
                message = queue.get(timeout=5)
                assert message.headers["argsrepr"] == repr((row,))
                message.ack()
            with pytest.raises(queue.Empty):
                queue.get(block=False)
            queue.close()


def test_silos_that_cannot_be_asked_are_no_error(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    ask(settings.model_copy(update={"silos": 2}), broken=True)
    assert "asked again soon" in caplog.text
    assert "silo-" not in caplog.text


class Stuck:
    """In place of Celery: sends only once it is let go."""

    def __init__(self) -> None:
        self.taken, self.let_go = threading.Event(), threading.Event()
        self.sent: list[str] = []

    def send_task(self, name: str, args: list[str], **_: object) -> None:
        self.taken.set()
        assert self.let_go.wait(20)
        self.sent += args


def test_a_broker_that_hangs_delays_nobody(caplog: pytest.LogCaptureFixture) -> None:
    celery = Stuck()
    dispatcher = Dispatcher(lambda: celery)
    began = time.monotonic()
    dispatcher.nudge("first")
    assert celery.taken.wait(5)  # the thread holds it
    for number in range(WAITING):
        dispatcher.nudge(f"job-{number}")
    assert "dropped" not in caplog.text
    dispatcher.nudge("one too many")
    assert time.monotonic() - began < 5
    assert caplog.text.count("dropped") == 1
    celery.let_go.set()
    within(5, lambda: len(celery.sent) == WAITING + 1)
    assert celery.sent[:2] == ["first", "job-0"]
    dispatcher.close()


def test_closing_sends_what_waits_and_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "DRAIN_SECONDS", 0.5)
    celery = Stuck()
    dispatcher = Dispatcher(lambda: celery)
    dispatcher.nudge("job-1")
    began = time.monotonic()
    dispatcher.close()  # hangs
    assert 0.5 <= time.monotonic() - began < 2.5
    assert not celery.sent
    celery.let_go.set()
    dispatcher.close()
    assert celery.sent == ["job-1"]


def test_a_redis_that_never_answers_is_given_up(
    data_dir: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "REPLY_SECONDS", 0.2)
    skip_pauses(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        dispatcher = Dispatcher(
            lambda: make_celery(Settings(data_dir=data_dir, broker_url=url))
        )
        began = time.monotonic()
        dispatcher.nudge("job-1")
        assert time.monotonic() - began < 0.5
        within(20, lambda: "nudge not sent" in caplog.text)
        with pytest.raises(Exception, match=r"(?i)time"):
            dispatcher.check()
        dispatcher.close()


@pytest.mark.parametrize(
    "known", [False, True], ids=["of nobody known", "of a known authority"]
)
def test_a_redis_over_tls_gets_the_password_only_with_a_certificate_of_its_name(
    data_dir: Path,
    authority: tuple[Path, ssl.SSLContext],  # noqa: F811 - the fixture
    monkeypatch: pytest.MonkeyPatch,
    known: bool,
) -> None:
    skip_pauses(monkeypatch)
    certificate, context = authority
    if known:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    received = list[bytes]()

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as link:
            try:
                with context.wrap_socket(link, server_side=True) as secured:
                    received.append(secured.recv(4096))
            except OSError:  # the client refuses the certificate
                received.append(b"")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        url = f"rediss://:of-the-broker@localhost:{listener.getsockname()[1]}/0"
        made = make_celery(Settings(data_dir=data_dir, broker_url=url))
        with pytest.raises(OperationalError):
            Dispatcher(lambda: made).check()
        server.join(20)
    assert [b"of-the-broker" in one for one in received] == [known]
