"""The worker image's health check: healthy while no job is left lying."""

import os
import runpy
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine
from sqlmodel import Session

from models import Job, Model
from models.database.session import make_engine
from models.database.types import utcnow
from models.job import PARKED
from tests.packaging.dockerfile import REPOSITORY

# Relative to the moment a test runs, which may be long after this file was read.
LONG_AGO, JUST_NOW, SOON = timedelta(minutes=-20), timedelta(seconds=-5), timedelta(minutes=5)


CHECK = REPOSITORY / "docker" / "worker_health.py"


def _check(url: str, **settings: str) -> str | None:
    """Return what the check says is wrong, or None: run here, as importing costs a second."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**settings, "LETHE_DATABASE_URL": url}.items():
            patch.setenv(name, value)
        try:
            runpy.run_path(str(CHECK), run_name="__main__")
        except SystemExit as ended:
            return str(ended.code)
    return None


def _process(url: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, CHECK],
        env={
            **os.environ,
            **settings,
            "LETHE_DATABASE_URL": url,
            "PYTHONPATH": str(REPOSITORY),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def filled(engine: Engine) -> Engine:
    """A database with two models."""
    with Session(engine) as session:
        for ref in ("one", "two"):
            model = Model(
                ref=ref,
                method="ridge-exact",
                config={},
                classes=[],
                extractor={},
                tombstone_key=b"",
            )
            session.add(model)
        session.commit()
    return engine


def _job(
    engine: Engine,
    name: str,
    created: timedelta = LONG_AGO,
    *,
    model_id: int = 1,
    stage: str = "execute",
    lease: timedelta | None = None,
    done: timedelta | None = None,
) -> None:
    now = utcnow()
    with Session(engine) as session:
        job = Job(id=name, model_id=model_id, kind="learn", stage=stage)
        job.created_at = now + created
        job.lease_until = None if lease is None else now + lease
        job.done_at = None if done is None else now + done
        session.add(job)
        session.commit()


def test_an_idle_service_is_healthy(filled: Engine, database_url: str) -> None:
    _job(filled, "done", done=LONG_AGO)
    assert _check(database_url) is None
    assert _process(database_url).returncode == 0


IN_HAND = {
    "young": (JUST_NOW, None),
    "held": (LONG_AGO, SOON),
    "just lost its lease": (LONG_AGO, JUST_NOW),
}


@pytest.mark.parametrize("name", IN_HAND)
def test_a_job_under_a_lease_is_healthy(filled: Engine, database_url: str, name: str) -> None:
    created, lease = IN_HAND[name]
    _job(filled, "a", created, lease=lease)
    assert _check(database_url) is None


def test_a_long_queue_that_moves_is_healthy(filled: Engine, database_url: str) -> None:
    _job(filled, "a", done=JUST_NOW)
    _job(filled, "b")
    _job(filled, "c")
    assert _check(database_url) is None


def test_a_request_that_waits_for_an_operator_is_healthy(
    filled: Engine, database_url: str
) -> None:
    with Session(filled) as session:
        session.get_one(Model, 1).state = "quarantined"
        session.commit()
    _job(filled, "a")
    assert _check(database_url) is None


def test_a_request_that_waits_for_review_is_healthy(filled: Engine, database_url: str) -> None:
    _job(filled, "a", stage=PARKED)
    assert _check(database_url) is None


def test_a_request_that_waits_for_review_hides_no_stuck_one(
    filled: Engine, database_url: str
) -> None:
    _job(filled, "a", stage=PARKED, lease=SOON)
    _job(filled, "b")
    assert _check(database_url) == "1 models wait for a worker longer than 0:05:00"


def test_a_long_training_before_an_older_request_is_healthy(
    filled: Engine, database_url: str
) -> None:
    _job(filled, "a")  # it came back from its review while the other one was trained
    _job(filled, "b", lease=SOON)
    assert _check(database_url) is None


STUCK = {"nobody took it": None, "its worker died long ago": LONG_AGO}


@pytest.mark.parametrize("name", STUCK)
def test_a_job_that_no_worker_takes_is_unhealthy(
    filled: Engine, database_url: str, name: str
) -> None:
    _job(filled, "other", model_id=2, done=JUST_NOW)
    _job(filled, "a", lease=STUCK[name])
    _job(filled, "b")
    done = _process(database_url)
    assert done.returncode == 1
    assert done.stderr.startswith("1 models wait")


def test_a_database_that_does_not_answer_is_unhealthy_and_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'nowhere' / 'lethe.db'}"
    done = _process(url)
    assert done.returncode == 1
    assert done.stderr == "the database cannot be asked: OperationalError\n"
    make_engine(url).dispose()
