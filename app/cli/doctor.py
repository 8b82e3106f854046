"""`lethe doctor`: checks each part of this installation and names remedies."""

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Literal

import click
from sqlalchemy import func
from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app.backup.beats import read_beats
from app.backup.scratch import leftovers
from app.ledger.startup import require_schema
from app.notices import mail
from app.problems import NotReadyError
from app.schemas.families.scripts import runs_script
from app.service import health
from app.service.context import Services, open_services
from app.service.queue import waits_for_a_worker
from app.settings import Settings
from lethe.catalogue import RECIPE, SCRIPT, SHARDS
from lethe.cli.options import as_json as as_json_option
from lethe.cli.options import plain
from lethe.errors import LetheError
from lethe.install import with_extra
from models import Job, Model, ScheduleLease
from models.database.session import opened_engine, reading
from models.database.types import clock, utcnow

LATE = timedelta(minutes=5)  # a job's wait, without a busy worker, that counts as a failure
LEFT = timedelta(hours=1)  # age at which a killed command's scratch directory is reported
SKEW = timedelta(seconds=2)
# Run as a process: it needs one thread, and gives up its own rights.
TRIAL = ("-m", "workers.training.isolation.trial")
ROOT = Path(__file__).parents[2]
State = Literal["ok", "fails", "not used", "not checked"]


class NotUsedError(Exception):
    """A part that this installation does not use; the text says how to set it up."""


@dataclass(slots=True)
class Diagnosis:
    """The results by part, in the order of the checks."""

    parts: list[tuple[str, State, str]] = field(default_factory=list)

    def look(self, part: str, check: Callable[[], str | None]) -> bool:
        """Run a check and add its text, or that of its error. Return False if it failed."""
        state: State = "fails"
        try:
            state, words = "ok", check() or ""
        except NotUsedError as error:
            state, words = "not used", str(error)
        except LetheError as error:
            words = error.detail
        except Exception as error:  # a driver's text may repeat a password
            words = type(error).__name__
        self.parts.append((part, state, words))
        return state != "fails"

    def skip(self, *parts: str) -> None:
        """Add parts that cannot be checked because an earlier part failed."""
        self.parts += [(part, "not checked", "") for part in parts]


@click.command()
@as_json_option
def doctor(as_json: bool) -> None:
    """Check each part of this installation and say how to fix what fails.

    Starts as the service does, and may run beside it. Exits with 1 if a part fails.
    """
    found = diagnose()
    if as_json:
        keys = ("part", "state", "detail")
        click.echo(json.dumps([dict(zip(keys, one, strict=True)) for one in found.parts]))
    else:
        for part, state, words in found.parts:
            click.echo(plain(f"{state:12} {part:18} {words}").rstrip())
    if any(state == "fails" for _, state, _ in found.parts):
        sys.exit(1)


def diagnose() -> Diagnosis:
    """Check every part whose prerequisites work."""
    found = Diagnosis()
    made: list[Settings] = []
    if not found.look("settings", lambda: _settings(made)):
        found.skip(
            "files", "database", "clock", "service", "schedule", "workers", "isolation",
            "followers", "mail", "pdf",
        )  # fmt: skip
        return found
    (settings,) = made
    found.look("files", lambda: _files(settings))
    with opened_engine(settings.resolved_database_url) as engine:
        if found.look("database", lambda: _database(engine)):
            found.look("clock", lambda: _clock(engine))
            _service(settings, found)
            found.look("schedule", lambda: _schedule(engine))
            found.look("workers", lambda: _workers(settings, engine))
            found.look("isolation", lambda: _isolation(engine))
        else:
            found.skip("clock", "service", "schedule", "workers", "isolation")
    found.look("followers", lambda: _followers(settings))
    found.look("mail", lambda: _mail(settings))
    found.look("pdf", _pdf)
    return found


def _settings(made: list[Settings]) -> str:
    settings = Settings()
    made.append(settings)
    return f"{settings.environment}, log {settings.origin}"


def _files(settings: Settings) -> str:
    directory = settings.data_dir
    if not directory.is_dir():
        raise LetheError(
            "there is no data directory: set LETHE_DATA_DIR, or run lethe log init"
        )
    if (mode := directory.stat().st_mode & 0o777) & 0o077:
        raise LetheError(f"others may read in the data directory (mode {mode:03o}): chmod 700")
    if left := leftovers(directory, LEFT):
        raise LetheError(
            f"{left[0]} was left by a command that was killed, and holds copies of rows or "
            "keys that may have been destroyed since: remove it"
        )
    settings.require_writable()
    begun = time.monotonic()
    with NamedTemporaryFile(dir=directory, prefix=".doctor-") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the signing guard relies on it
        file.write(b"x")
        file.flush()
        os.fsync(file.fileno())
    took = 1000 * (time.monotonic() - begun)
    return f"flock works, and a synced write took {took:.0f} ms"


def _database(engine: Engine) -> str:
    require_schema(engine)
    return engine.dialect.name


def _clock(engine: Engine) -> str:
    """Compare this machine's clock (tokens, signatures) with the database's (leases)."""
    with reading(engine).connect() as connection:
        skew = abs(clock(connection) - utcnow())
    if skew > SKEW:
        raise LetheError(
            f"the clocks of this machine and of the database differ by {skew}, more "
            f"than {SKEW}: run NTP on both"
        )
    return f"differs from the database's by {skew / timedelta(milliseconds=1):.0f} ms"


def _service(settings: Settings, found: Diagnosis) -> None:
    """Open everything as the service does, and check the parts of /readyz."""
    opened: list[Services] = []
    if not found.look("service", lambda: opened.append(open_services(settings))):
        return
    (services,) = opened
    with suppress(NotReadyError):  # `seen` has the results by part
        health.ready(services)
    for name in health.PARTS[1:]:  # the database was checked before
        _, why = services.seen[name]
        found.look(name, partial(_part, why))
    services.close()


def _part(why: object) -> None:
    if why is not None:
        raise LetheError(str(why))


def _schedule(engine: Engine) -> str:
    with Session(reading(engine)) as session:
        lease, now = session.get(ScheduleLease, 1), clock(session)
    if lease is None or lease.until < now:
        raise LetheError("no process runs the schedule: start lethe worker --beat")
    return "a process runs it"


def _workers(settings: Settings, engine: Engine) -> str:
    with Session(reading(engine)) as session:
        now = clock(session)
        open_jobs = select(func.count()).where(col(Job.done_at).is_(None))
        waiting = session.exec(open_jobs).one()
        held = session.exec(open_jobs.where(col(Job.lease_until) > now)).one()
        free = waits_for_a_worker(settings, now)
        count, oldest = session.exec(
            select(func.count(), func.min(col(Job.created_at))).where(*free)
        ).one()
    if oldest is not None and not held and now - oldest > LATE:
        raise LetheError(f"{count} jobs wait and no worker holds one: start lethe worker")
    return f"{waiting} unfinished jobs, {held} held by a worker"


def _isolation(engine: Engine) -> str:
    """Say what a worker on this machine isolates. A fault only if a model needs it."""
    done = subprocess.run(
        [sys.executable, *TRIAL],
        capture_output=True,
        check=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    lacks = json.loads(done.stdout)
    if lacks["fits"]:
        lost = "scripts do not run, and recipe fits can read files and use the network"
    elif lacks["metadata"]:
        lost = "scripts do not run, and recipe fits can change modes and times of files"
    elif lacks["scripts"]:
        lost = "scripts do not run"
    else:
        return "scripts and recipe fits are isolated"
    words = f"{lost}: {lacks['scripts']}"
    with Session(reading(engine)) as session:
        configs = session.exec(
            select(Model.config)
            .where(col(Model.method).in_((*RECIPE, *SCRIPT, *SHARDS)))
            .where(Model.state != "deleted")
        ).all()
    if any(runs_script(config) or lacks["fits"] or lacks["metadata"] for config in configs):
        raise LetheError(words)
    raise NotUsedError(words)


def _followers(settings: Settings) -> str:
    beats = read_beats(settings)
    for beat in beats:
        if beat.is_late:
            raise LetheError(
                f"nothing was followed into {beat.directory} since {beat.at}: start lethe "
                f"backup follow, or, if it was given up, remove {beat.path}"
            )
    if not beats:
        raise NotUsedError("start lethe backup follow, or archive PostgreSQL's log")
    lag = max(beat.lag for beat in beats) / timedelta(seconds=1)
    return f"{len(beats)} directories, at most {lag:.0f} s behind the database"


def _mail(settings: Settings) -> str:
    if not mail.is_configured(settings):
        raise NotUsedError("LETHE_SMTP_URL is empty: no mail is sent")
    mail.check(settings)
    return "the server took the sign-in"


def _pdf() -> str:
    if find_spec("weasyprint") is None:
        raise NotUsedError(f"for certificates as PDF, {with_extra('pdf')}")
    try:
        import weasyprint
    except OSError:
        raise LetheError(
            "WeasyPrint does not find Pango: apt-get install libpango-1.0-0 libpangoft2-1.0-0"
        ) from None
    return f"WeasyPrint {weasyprint.__version__}"
