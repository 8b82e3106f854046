"""`lethe doctor`: each planted fault is reported for its part only."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text
from sqlmodel import Session, col, update

from app.backup.beats import Beat, write_beat
from app.cli import doctor as module
from app.cli.doctor import doctor
from app.election import Election
from app.ledger.sequencer import Ledger
from app.metrics import read
from app.service.decisions import AWAITING
from app.settings import Settings
from models import ErasureRequest, Job, Model
from models.database.types import utcnow
from tests.app.cli.test_backup import point_at
from tests.app.intake.people import mail_server
from tests.installation import Installation
from tests.servers import free_port


@pytest.fixture(autouse=True)
def _well(settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installation of the environment, with a running schedule."""
    monkeypatch.setenv("LETHE_ORIGIN", settings.origin)
    point_at(settings, monkeypatch)
    settings.data_dir.chmod(0o700)
    assert Election(ledger.engine).leads()


def found() -> tuple[int, dict[str, tuple[str, str]]]:
    """Return the exit code, and state and text by part."""
    done = CliRunner().invoke(doctor, ["--json"])
    parts = json.loads(done.output)
    return done.exit_code, {one["part"]: (one["state"], one["detail"]) for one in parts}


def failing() -> dict[str, str]:
    """Return the texts of the failing parts."""
    status, parts = found()
    failed = {part: words for part, (state, words) in parts.items() if state == "fails"}
    assert status == bool(failed)
    return failed


def test_a_well_installation(settings: Settings) -> None:
    status, parts = found()
    assert status == 0, parts
    assert {state for state, _ in parts.values()} <= {"ok", "not used"}
    assert {"files", "database", "guard", "keys", "broker", "workers", "mail"} <= set(parts)
    told = CliRunner().invoke(doctor)
    assert "ok           schedule           a process runs it" in told.output


def _shared(settings: Settings) -> None:
    settings.data_dir.chmod(0o755)


def _left_by_the_killed(settings: Settings) -> None:
    left = settings.data_dir / "restore-1.scratch"
    left.mkdir()
    os.utime(left, (0, 0))


def _no_issuer(settings: Settings) -> None:
    (settings.keys_dir / "issuer.key").unlink()


def _no_log_key(settings: Settings) -> None:
    (settings.keys_dir / "log.key").unlink()


def _late_follower(settings: Settings) -> None:
    write_beat(settings, Beat("/mnt/nas", "2020-01-01T00:00:00+00:00", 10))


def _no_data(settings: Settings) -> None:
    settings.data_dir.rename(settings.data_dir.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("plant", "part", "words"),
    [
        (_shared, "files", "chmod 700"),
        (_left_by_the_killed, "files", "remove it"),
        (_no_issuer, "keys", "issuer.key"),
        (_late_follower, "followers", "/mnt/nas since 2020-01-01"),
        (_no_log_key, "service", "log.key"),
        (_no_data, "files", "LETHE_DATA_DIR"),
    ],
)
def test_a_fault_of_files_is_named(
    settings: Settings, plant: Callable[[Settings], None], part: str, words: str
) -> None:
    plant(settings)
    assert words in failing()[part]


def test_faults_of_the_database(ledger: Ledger, settings: Settings) -> None:
    with Session(ledger.engine) as session:
        session.connection().execute(text("DELETE FROM schedule_lease"))
        session.commit()
    assert list(failing()) == ["schedule"]
    with Session(ledger.engine) as session:
        session.connection().execute(text("UPDATE alembic_version SET version_num = '0001'"))
        session.commit()
    assert "lethe migrate" in failing()["database"]
    _, parts = found()
    assert parts["service"] == ("not checked", "")


def test_a_clock_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "utcnow", lambda: utcnow() + timedelta(seconds=9))
    assert "NTP" in failing()["clock"]


def test_jobs_that_nobody_takes(ready: Installation) -> None:
    ready.caller.erase_records("r1")
    assert failing() == {}
    with Session(ready.services.engine) as session:
        hour_ago = utcnow() - timedelta(hours=1)
        session.connection().execute(
            update(Job).where(col(Job.done_at).is_(None)).values(created_at=hour_ago)
        )
        session.commit()
    assert failing() == {"workers": "1 jobs wait and no worker holds one: start lethe worker"}


def _quarantine(session: Session) -> None:
    session.connection().execute(update(Model).values(state="quarantined"))


def _give_up(session: Session) -> None:
    """As if its worker had died each time."""
    session.connection().execute(update(Job).where(_UNFINISHED).values(deaths=5))
    session.connection().execute(update(ErasureRequest).values(state=AWAITING))


_UNFINISHED = col(Job.done_at).is_(None)


@pytest.mark.parametrize(
    ("plant", "batched"),
    [(_quarantine, False), (_give_up, False), (lambda _: None, True)],
    ids=["a quarantined model", "a decision", "a batch"],
)
def test_jobs_that_wait_for_something_else_than_a_worker(
    ready: Installation,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[Session], None],
    batched: bool,
) -> None:
    ready.caller.erase_records("r1")
    hour_ago = utcnow() - timedelta(hours=1)
    with Session(ready.services.engine) as session:
        session.connection().execute(update(Job).where(_UNFINISHED).values(created_at=hour_ago))
        plant(session)
        session.commit()
    if batched:
        monkeypatch.setenv("LETHE_BATCH_MIN_REQUESTS", "2")
        monkeypatch.setenv("LETHE_BATCH_MAX_WAIT_SECONDS", "86400")
    assert failing() == {}
    metrics = {one.name: one for one in read(replace(ready.services, settings=Settings()))}
    assert metrics["lethe_queue_oldest_seconds"].samples == {(): 0.0}
    assert metrics["lethe_jobs"].samples == {("erase", "execute"): 1.0}


PARTS = ("fits", "metadata", "scripts")
LANDLOCK = "programs cannot be isolated here, Landlock is missing (boot Linux 6.2 or newer)"


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        ((), "scripts and recipe fits are isolated"),
        (("scripts",), f"scripts do not run: {LANDLOCK}"),
        (
            ("scripts", "metadata"),
            "scripts do not run, and recipe fits can change modes and times of files: "
            f"{LANDLOCK}",
        ),
        (
            ("scripts", "metadata", "fits"),
            "scripts do not run, and recipe fits can read files and use the network: "
            f"{LANDLOCK}",
        ),
    ],
)
def test_what_isolates_fits_and_scripts(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, lost: tuple[str, ...], words: str
) -> None:
    found_out = {part: LANDLOCK if part in lost else None for part in PARTS}
    planted = f"print({json.dumps(json.dumps(found_out))})"
    monkeypatch.setattr(module, "TRIAL", ("-c", planted))
    assert found()[1]["isolation"] == ("not used" if lost else "ok", words)
    script: dict[str, Any] = {"script": {}}
    for method, config in (
        ("rerun", script), ("refit-shards", script), ("refit", {}), ("refit-shards", {}),
    ):  # fmt: skip
        with Session(ready.services.engine) as session:
            session.connection().execute(update(Model).values(method=method, config=config))
            session.commit()
        # A recipe needs nothing of what only scripts lack.
        needed = lost if config else lost[1:]
        assert failing() == ({"isolation": words} if needed else {})
    with Session(ready.services.engine) as session:
        session.connection().execute(update(Model).values(state="deleted"))
        session.commit()
    assert failing() == {}


def test_the_trial_of_isolation_runs() -> None:
    state, words = found()[1]["isolation"]
    assert "scripts" in words
    assert state in ("ok", "not used")


def test_mail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_MAIL_FROM", "privacy@example.com")
    with mail_server() as box:
        monkeypatch.setenv("LETHE_SMTP_URL", box.url)
        assert found()[1]["mail"] == ("ok", "the server took the sign-in")
        assert box.mails == []
    monkeypatch.setenv("LETHE_SMTP_URL", f"smtp+plain://127.0.0.1:{free_port()}")
    assert "mail" in failing()


def test_settings_that_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LETHE_SWEEP_SECONDS", "never")
    failed = failing()
    assert list(failed) == ["settings"]
    assert "LETHE_SWEEP_SECONDS" in failed["settings"]
