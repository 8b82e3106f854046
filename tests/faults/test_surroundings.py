"""The disk is full for a while, or the broker is away: acknowledged requests wait it out."""

import errno
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlmodel import Session, select
from starlette.testclient import TestClient

from app import dispatch
from app.dispatch import Dispatcher, make_celery
from app.ledger.guard import SigningGuard
from app.ledger.receipt import UnpublishedError
from app.main import create_app
from app.vault.artifacts import ArtifactStore
from lethe.files import PARTIAL
from models import Artifact, ErasureRequest
from tests.doubles.pauses import skip_pauses
from tests.faults.conftest import certified_once
from tests.installation import Installation


@dataclass
class FullDisk:
    """Makes a call fail as on a full disk, `left` times."""

    monkeypatch: pytest.MonkeyPatch
    left: int

    def fill(self, owner: type, name: str, when: Callable[..., bool]) -> None:
        """Let no file become durable inside calls of `owner.name` for which `when` holds."""
        real = getattr(owner, name)

        def called(*arguments: Any) -> Any:
            if self.left == 0 or not when(*arguments):
                return real(*arguments)
            self.left -= 1
            with self.monkeypatch.context() as patched:
                patched.setattr(os, "fsync", full)
                return real(*arguments)

        self.monkeypatch.setattr(owner, name, called)


class NoSpaceError(OSError):
    """What the system raises on a full disk, told from any other error of the same kind."""


def full(_: int) -> None:
    raise NoSpaceError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def disk(installed: Installation, monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    """A disk that stays full for longer than an error of a method would be tried again."""
    return FullDisk(monkeypatch, installed.settings.max_tries + 2)


def outlast(installed: Installation, disk: FullDisk) -> None:
    """Sweep until the disk has room again, then to the end; nothing fails meanwhile."""
    for _ in range(3 * disk.left):
        installed.dispatcher.nudges.clear()
        # A task may end so: it is logged, and the next sweep comes.
        with suppress(NoSpaceError, UnpublishedError):
            installed.recover()
        with Session(installed.services.engine) as session:
            (request,) = session.exec(select(ErasureRequest))
        assert request.state not in ("failed", "refused", "withdrawn")
        if request.state == "certified":
            break
    assert disk.left == 0
    certified_once(installed)


@pytest.mark.parametrize("kind", ["state", "head", "draft", "evidence"])
def test_a_full_disk_while_an_artifact_is_written_is_waited_out(
    installed: Installation, disk: FullDisk, kind: str
) -> None:
    disk.fill(ArtifactStore, "put_all", lambda store, session, stored, data: stored == kind)
    assert installed.caller.erase_records("r1", "r2").status_code == 202
    outlast(installed, disk)
    files = {path.name for path in (installed.settings.data_dir / "artifacts").iterdir()}
    assert not [name for name in files if name.startswith(PARTIAL)]
    with Session(installed.services.engine) as session:
        live = select(Artifact.id).where(Artifact.wrapped_key.is_not(None))  # type: ignore[union-attr]
        assert set(session.exec(live)) <= files


def test_a_full_disk_while_a_checkpoint_is_guarded_is_waited_out(
    installed: Installation, disk: FullDisk
) -> None:
    assert installed.caller.erase_records("r1", "r2").status_code == 202
    disk.fill(SigningGuard, "advance", lambda *_: True)
    outlast(installed, disk)


def test_a_full_disk_at_submission_is_reported_and_a_resent_submission_accepted(
    installed: Installation, disk: FullDisk
) -> None:
    """The request is durable but unproven: the client gets an error and asks again."""
    disk.left = 1
    disk.fill(SigningGuard, "advance", lambda *_: True)
    app = create_app(installed.services)
    caller = replace(installed.caller, http=TestClient(app, raise_server_exceptions=False))
    once = {"idempotency-key": "once"}
    refused = caller.erase_records("r1", "r2", headers=once)
    assert refused.status_code == 503
    assert refused.headers["content-type"] == "application/problem+json"
    told = refused.json()
    assert told["type"] == "urn:lethe:problem:log-unpublished"
    assert "is stored" in told["detail"]
    assert int(refused.headers["retry-after"]) > 0
    again = caller.erase_records("r1", "r2", headers=once)
    assert again.status_code == 202
    assert again.json()["receipt"]["checkpoint"]
    assert disk.left == 0
    installed.recover()
    certified_once(installed)


@pytest.mark.parametrize("how", ["refuses", "hangs"])
def test_a_submission_without_a_broker_is_acknowledged_and_certified_later(
    installed: Installation,
    how: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "REPLY_SECONDS", 0.2)
    skip_pauses(monkeypatch)
    with socket.socket() as broker, caplog.at_level(logging.WARNING, "app.dispatch"):
        broker.bind(("127.0.0.1", 0))
        if how == "hangs":  # connections are accepted, and nothing is ever said
            broker.listen()
        url = f"redis://127.0.0.1:{broker.getsockname()[1]}/0"
        settings = installed.settings.model_copy(update={"broker_url": url})
        dispatcher = Dispatcher(lambda: make_celery(settings))
        app = create_app(replace(installed.services, dispatcher=dispatcher))
        caller = replace(installed.caller, http=TestClient(app))
        accepted = caller.erase_records("r1", "r2")
        until_logged(caplog, "nudge not sent")
    assert accepted.status_code == 202, accepted.text
    assert not installed.dispatcher.nudges
    shown = caller.http.get(f"/v1/requests/{accepted.json()['id']}").json()
    assert shown["state"] == "received"
    installed.recover()
    certified_once(installed)


def until_logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    deadline = time.monotonic() + 30
    while text not in caplog.text:
        assert time.monotonic() < deadline, f"waited for: {text}"
        time.sleep(0.01)
