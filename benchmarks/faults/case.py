"""One fault: a process that it strikes, and fresh processes that recover from it.

The processes are forks of one that has imported everything and opened nothing. The first does
what its workload says, with the layer below it; it may fail, die or stand still. A fresh one
does the same again, as a client that got no answer, and works until all has ended; it judges
too.
"""

import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import NullPool

from app.settings import Settings
from benchmarks.faults.acknowledged import Acknowledged
from benchmarks.faults.judgement import Judgement, judge
from benchmarks.faults.layer import HOURS, Fault, Layer, jump
from benchmarks.faults.workload import StuckError, Workload, work
from benchmarks.faults.workloads import WORKLOADS
from lethe.signing.keys import PrivateKey, load_private_key
from tests import installation
from tests.installation import Installation, install

PATIENCE_S = 90.0  # for one process; SQLite waits 15 s for another writer
PREPARED_S = 600.0  # the first forest of a new clone is compiled, in a minute or more
FROZEN_S = 4.0  # that a process stands still, where the others cannot end without it
STALL_S = 2  # after which PostgreSQL ends a transaction that stands still


@dataclass(frozen=True)
class Beginning:
    """A fitted installation that each case copies; nothing has it open."""

    database_url: str
    data_dir: Path
    key_pem: str
    origin: str

    @property
    def key(self) -> PrivateKey:
        """The requester's key: a process that is handed a beginning gets it as text."""
        return load_private_key(self.key_pem.encode())


@dataclass(frozen=True)
class Case:
    """A fault in a workload. beside: a second, healthy process does the same at the same time.

    fault: None where two processes at once are the fault.
    """

    workload: str
    fault: Fault | None
    beside: bool = False

    @property
    def mode(self) -> str:
        """What happens, in a word or two."""
        mode = "" if self.fault is None else self.fault.mode
        return "+".join(filter(None, (mode, "two" if self.beside else "")))


@dataclass
class Outcome:
    """What became of a case. struck: the fault happened; `errors`: what processes said."""

    case: Case
    database: str
    struck: bool
    judgement: Judgement
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def bad(self) -> bool:
        """Return whether anything was found."""
        return any(self.judgement.as_dict().values())

    def as_dict(self) -> dict[str, Any]:
        """Return what a report says of it."""
        fault = None if self.case.fault is None else asdict(self.case.fault)
        return {
            "workload": self.case.workload,
            "database": self.database,
            "mode": self.case.mode,
            "fault": fault,
            "errors": self.errors,
            **self.judgement.as_dict(),
        }


Break = Callable[[], None]  # changes the product in each process, for a test of the campaign


def run_case(
    case: Case, beginning: Beginning, place: Path, broken: Break | None = None
) -> Outcome:
    """Run one case in a copy of the beginning below `place`, and remove the copy again."""
    begun = time.monotonic()
    workload = WORKLOADS[case.workload]
    frozen = case.fault is not None and case.fault.mode.startswith("frozen")
    ahead = case.fault is not None and case.fault.mode == "frozen-long"
    with copied(prepared(workload, beginning, place), place, workload) as settings:

        def strike(tell: Tell) -> None:
            Layer(settings.data_dir, case.fault, lambda what: tell(what, None)).install()
            do(settings, beginning.key, workload, tell)

        def again(tell: Tell) -> None:
            do(settings, beginning.key, workload, tell)

        def later(tell: Tell) -> None:
            if ahead:
                jump(HOURS)
            again(tell)

        struck = Child(strike, broken)
        beside = Child(again, broken) if case.beside else None
        if frozen and struck.stopped():
            other = Child(later, broken)
            other.wait(FROZEN_S)
            struck.resume()
            other.wait(PATIENCE_S)
        else:
            other = None
        children = [one for one in (struck, beside, other) if one is not None]
        for child in children:
            child.wait(PATIENCE_S)
        told: Acknowledged = [
            (kind, value)
            for child in children
            for kind, value in child.said
            if kind not in ("struck", "error", "failed")
        ]

        def recover(tell: Tell) -> None:
            fresh: Acknowledged = []

            def keep(kind: str, value: Any) -> None:
                (
                    fresh.append((kind, value))
                    if kind not in ("error", "failed")
                    else tell(kind, value)
                )

            left = workload.left(settings)
            with opened(settings, beginning.key) as made:
                do_in(made, workload, keep)
                judgement = judge(
                    settings,
                    made.services.ledger,
                    workload,
                    [*told, *fresh],
                    beside=case.beside,
                    actors=len(children),
                )
            judgement.lost += [] if left is None else [left]
            tell("judgement", judgement.as_dict())

        judging = Child(recover, broken)
        judging.wait(PATIENCE_S)
    found = Judgement(**next((v for k, v in judging.said if k == "judgement"), {}))
    errors = [
        str(v) for c in (*children, judging) for k, v in c.said if k in ("error", "failed")
    ]
    for child in (*children, judging):
        if child.hung:
            found.stuck.append(f"a process did not end within {PATIENCE_S:.0f} s")
    found.stuck += [str(v) for k, v in judging.said if k in ("error", "failed")]
    if not judging.hung and all(kind != "judgement" for kind, _ in judging.said):
        # What was acknowledged cannot be read any more.
        found.lost += [f"{kind}: nothing starts any more" for kind, _ in told]
        found.stuck.append("nothing starts any more")
    happened = case.fault is None or any(kind == "struck" for kind, _ in struck.said)
    kind = "sqlite" if beginning.database_url.startswith("sqlite") else "postgresql"
    return Outcome(case, kind, happened, found, errors, time.monotonic() - begun)


def calls_of(
    workload: Workload, beginning: Beginning, place: Path
) -> tuple[dict[str, int], list[tuple[str, int]]]:
    """Run a workload without a fault; return its calls by site and the product's lines in them.

    Raises:
        RuntimeError: It does not end well even so.
    """
    with copied(prepared(workload, beginning, place), place, workload) as settings:

        def count(tell: Tell) -> None:
            layer = Layer(settings.data_dir, None, lambda _: None)
            layer.install()
            do(settings, beginning.key, workload, tell)
            tell("calls", dict(layer.counts))
            tell("lines", sorted(layer.lines))

        child = Child(count, None)
        child.wait(PATIENCE_S)
    said = dict(child.said)
    if "calls" not in said or "error" in said or "failed" in said:
        raise RuntimeError(f"{workload.name} fails without a fault: {child.said}")
    return said["calls"], [(file, line) for file, line in said["lines"]]


Tell = Callable[[str, Any], None]


@cache
def prepared(workload: Workload, beginning: Beginning, place: Path) -> Beginning:
    """Do once, in a process of its own, what comes before a workload; return what it leaves.

    Raises:
        RuntimeError: It fails.
    """
    before = workload.prepare
    if before is None:
        return beginning
    settings = _copy(beginning, place, workload)

    def prepare(_: Tell) -> None:
        with opened(settings, beginning.key) as made:
            before(made)

    child = Child(prepare, None)
    child.wait(PREPARED_S)
    if child.said or child.hung:
        raise RuntimeError(f"{workload.name} cannot be prepared: {child.said}")
    return replace(
        beginning, database_url=settings.resolved_database_url, data_dir=settings.data_dir
    )


def do(settings: Settings, key: PrivateKey, workload: Workload, tell: Tell) -> None:
    """Open an installation and do what the workload says."""
    with opened(settings, key) as made:
        do_in(made, workload, tell)


def do_in(made: Installation, workload: Workload, tell: Tell) -> None:
    """Do what the workload says, then be a worker until it has ended."""
    try:
        workload.act(made, tell)
    except StuckError as error:
        tell("error", str(error))
    if workload.work:
        work(made, workload.ended)


@contextmanager
def opened(settings: Settings, key: PrivateKey) -> Iterator[Installation]:
    """Open an installation as a process that starts; close what it must not leave open."""
    if settings.intake:  # its routes are not those that the beginning compiled for all
        installation.routes.clear()
    with install(settings) as made:
        made.caller.key = key
        yield made


class Child:
    """A fork that tells this process, by a pipe, what happens; what it told survives it."""

    def __init__(self, run: Callable[[Tell], None], broken: Break | None) -> None:
        self.hung = False
        self.said: list[tuple[str, Any]] = []
        self._ended = False
        self._data = b""
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            _be(run, writing, broken)
        os.close(writing)

    def stopped(self) -> bool:
        """Wait until the child stands still, and return True, or has ended."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            self._read()
            pid, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                return True
            if pid:
                self._end()
                return False
            time.sleep(0.005)
        return False

    def resume(self) -> None:
        """Let a child that stands still go on."""
        os.kill(self._pid, signal.SIGCONT)

    def wait(self, seconds: float) -> bool:
        """Return whether the child ends in time; one that has had PATIENCE_S is killed."""
        until = time.monotonic() + seconds
        while not self._ended:
            self._read()
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                self._end()
            elif time.monotonic() > until:
                if seconds < PATIENCE_S:
                    return False
                self.hung = True
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                self._end()
            else:
                time.sleep(0.005)
        return True

    def _end(self) -> None:
        self._ended = True
        self._read()
        os.close(self._reading)
        self.said = [tuple(json.loads(line)) for line in self._data.splitlines() if line]

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while data := os.read(self._reading, 1 << 16):
                self._data += data


def _be(run: Callable[[Tell], None], pipe: int, broken: Break | None) -> None:
    """Be a child, which never returns."""
    write, leave = os.write, os._exit  # before the layer is there

    def tell(kind: str, value: Any) -> None:
        data = json.dumps([kind, value]).encode() + b"\n"
        while data:
            data = data[write(pipe, data) :]

    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        if broken is not None:
            broken()
        run(tell)
    except BaseException:
        tell("failed", traceback.format_exc()[-1500:])
    finally:
        leave(0)


@contextmanager
def copied(beginning: Beginning, place: Path, workload: Workload) -> Iterator[Settings]:
    """Copy a beginning to a folder below `place`; removes it afterwards, and its database."""
    settings = _copy(beginning, place, workload)
    try:
        yield settings
    finally:
        url = make_url(settings.resolved_database_url)
        if url.get_backend_name() != "sqlite":
            _administer(url, f"DROP DATABASE {url.database} WITH (FORCE)")
        shutil.rmtree(settings.data_dir.parent)


def _copy(beginning: Beginning, place: Path, workload: Workload) -> Settings:
    folder = place / f"case-{os.getpid()}-{time.monotonic_ns()}"
    shutil.copytree(beginning.data_dir, folder / "data")
    url = make_url(beginning.database_url)
    if url.get_backend_name() == "sqlite":
        assert url.database is not None
        own = url.set(database=str(folder / "data" / "lethe.db"))
        if Path(url.database).parent != beginning.data_dir:
            shutil.copyfile(url.database, str(own.database))
    else:
        own = url.set(database=folder.name.replace("-", "_"))
        copy = f"CREATE DATABASE {own.database} TEMPLATE {url.database} STRATEGY FILE_COPY"
        _administer(url, copy)
    settings = Settings(
        database_url=own.render_as_string(hide_password=False),
        data_dir=folder / "data",
        origin=beginning.origin,
        decide="at-once",
        stall_seconds=STALL_S,
    )
    return settings.model_copy(update=workload.settings)


def _administer(url: URL, statement: str) -> None:
    admin = create_engine(
        url.set(database="postgres"), isolation_level="AUTOCOMMIT", poolclass=NullPool
    )
    with admin.connect() as connection:
        connection.execute(text(statement))
