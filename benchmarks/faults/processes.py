"""Faults in a real installation: `lethe serve` and `lethe worker --beat`, over HTTP.

Slower than a fork for each fault, so there are fewer; here the schedule, the broker, the leases
and their times are those of production. A process that died is started again, one that stands
still goes on after its lease has ended.
"""

import base64
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import product, zip_longest
from pathlib import Path

from app.ledger.startup import open_ledger
from app.vault.master import RootSecret
from benchmarks.faults.acknowledged import Acknowledged
from benchmarks.faults.case import Case, Outcome
from benchmarks.faults.judgement import judge
from benchmarks.faults.layer import CLOCK, MODES, Fault
from benchmarks.faults.workloads import WORKLOADS
from benchmarks.faults.wrapped import FAULT, SEEN, TOLD
from lethe.client.errors import ClientError
from models.database.session import make_engine
from models.database.types import seal_columns
from tests.e2e.fork_server import MODULES
from tests.e2e.forked import fork_server
from tests.e2e.harness import Process, Processes, running, stopped
from tests.small import MODEL

FILES = "filesystem://"
PATIENCE_S = 60.0
STILL_S = 3.0  # longer than a lease (2 s)
RECORDS = ["r1", "r2"]
STRUCK = ("api", "worker")  # which process
Line = tuple[str, int]
ORDER = ("killed", "persisted", "frozen", "full-for-a-while", "killed-after", "failed", "ahead")


def cases(sites: Sequence[tuple[str, str]] = ()) -> Iterator[tuple[str, Case]]:
    """Yield which process is struck, and how; the most different ones first.

    sites: each with the process that calls it, to be struck there once in each mode.
    """
    named = [
        (which, Case("erase", Fault(site, 1, mode)))
        for which, site in sites
        for mode in MODES[site.split()[0]]
        if _counts(which, mode)
    ]
    some = [  # a stride through all modes of all sites
        named[at] for first in range(_STRIDE) for at in range(first, len(named), _STRIDE)
    ]
    for pair in zip_longest(some, _of_kinds()):
        yield from (one for one in pair if one is not None)


_STRIDE = 7


def _of_kinds() -> Iterator[tuple[str, Case]]:
    for nth, mode, kind, which in product((2, 1, 4, 3, 6), ORDER, MODES, STRUCK):
        if mode in MODES[kind] and _counts(which, mode):
            yield which, Case("erase", Fault(kind, nth, mode), beside=nth == 4)


def _counts(which: str, mode: str) -> bool:
    # Whose API has a wrong clock is refused by it: nothing is acknowledged to be lost.
    return which != "api" or mode not in CLOCK


def sites_of(fit: Processes, place: Path) -> tuple[list[tuple[str, str]], set[Line]]:
    """Follow a request without a fault; return each process's sites, and their lines."""
    found, lines = list[tuple[str, str]](), set[Line]()
    with stopped(fit.copy(place / "real-seen", "", FILES)) as made:
        names = {which: made.directory / f"seen-{which}" for which in STRUCK}
        made.more = {SEEN: str(names["api"])}
        made.start_api()
        made.more = {SEEN: str(names["worker"])}
        made.start_worker()
        made.more = {}
        told, error = _follow(made)
        assert told, error
        made.kill()
        for which, name in names.items():
            for line in name.read_text().splitlines():
                site, led = json.loads(line)
                found.append((which, site))
                lines |= {(file, number) for file, number in led}
    return found, lines


@contextmanager
def fitted(place: Path) -> Iterator[Processes]:
    """Yield an installation on files whose small model is fitted, nothing running."""
    with ExitStack() as stack:
        forks = stack.enter_context(fork_server([*MODULES, "benchmarks.faults.wrapped"]))
        made = stack.enter_context(running(place / "real", "", FILES, forks))
        made.start_api()
        made.start_worker()
        made.register()
        made.kill()
        yield made


def run_case(fit: Processes, which: str, case: Case, place: Path) -> Outcome:
    """Strike one process of a copy of the installation, and see to the end of a request."""
    assert case.fault is not None
    begun = time.monotonic()
    folder = place / f"real-{time.monotonic_ns()}"
    with stopped(fit.copy(folder, "", FILES)) as made, ExitStack() as stack:
        stack.enter_context(_waking(made))
        told = folder / "told"
        planted = case.fault.site, case.fault.nth, case.fault.mode
        fault = {FAULT: json.dumps(planted), TOLD: str(told)}
        made.more = fault if which == "api" else {}
        with suppress(AssertionError):  # it may die while it starts
            made.start_api()
        made.more = fault if which == "worker" else {}
        made.start_worker()
        made.more = {}
        if case.beside:
            twin = stack.enter_context(stopped(replace(made, api=None, worker=None)))
            twin.start_worker()
        acknowledged, error = _follow(made)
        made.kill()
        if case.beside:
            twin.kill()
        engine = make_engine(made.settings.resolved_database_url)
        seal_columns(engine, RootSecret.load(made.settings))
        ledger = open_ledger(made.settings, engine)
        found = judge(made.settings, ledger, WORKLOADS["erase"], acknowledged)
        engine.dispose()
    struck = told.exists()
    named = replace(case, fault=replace(case.fault, site=f"{case.fault.site} {which}"))
    errors = [] if error is None else [error]
    return Outcome(named, "processes", struck, found, errors, time.monotonic() - begun)


def _follow(made: Processes) -> tuple[Acknowledged, str | None]:
    """Submit and wait for the certificate; start what died."""
    told: Acknowledged = []
    request_id, error = None, None
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            made.restart()
            with made.requester() as requester:
                if request_id is None:
                    receipt = requester.submit_erasure(
                        MODEL, records=RECORDS, idempotency_key="once"
                    )
                    request_id = receipt.id
                    leaf = base64.b64encode(receipt.receipt.leaf).decode()
                    told.append(("request", [request_id, receipt.receipt.log_index, leaf]))
                if requester.status(request_id).state == "certified":
                    requester.certificate(request_id)
                    return told, error
        except (ClientError, AssertionError) as caught:
            error = repr(caught)[:300]
        time.sleep(0.1)
    return told, error


@contextmanager
def _waking(made: Processes) -> Iterator[None]:
    """Wake processes that stand still, also while they are waited for to start."""
    over, still = threading.Event(), dict[int, float]()

    def wake() -> None:
        while not over.wait(0.1):
            for process in (made.api, made.worker):
                if process is not None:
                    _wake(process, still)

    thread = threading.Thread(target=wake, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _wake(process: Process, still: dict[int, float]) -> None:
    """Send SIGCONT to a process that has stood still for STILL_S."""
    with suppress(FileNotFoundError, ProcessLookupError):
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if (
            state == "T"
            and time.monotonic() - still.setdefault(process.pid, time.monotonic()) > STILL_S
        ):
            os.kill(process.pid, signal.SIGCONT)
            del still[process.pid]
