"""One real fault for each alert, and what ends it.

A fault is a block: what is planted when it begins is ended when it ends. `also` names alerts
that are consequences of the same fault, and may fire beside it or not, as time goes.
"""

import fcntl
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx2
from redis import Redis

from lethe.client.errors import ClientError
from tests.app.notices.receiver import receiving
from tests.app.test_broker import POISON
from tests.e2e.alerts.installation import MODELS, MONTH_H, QUOTA, REVIEWED, Watched
from tests.e2e.harness import until

Plant = Callable[[Watched], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    """A fault, the alert that is about it, and the part of the service that the alert names."""

    alert: str
    planted: str
    plant: Plant
    part: str = ""
    also: frozenset[str] = field(default_factory=frozenset)
    goes_on: bool = False  # the fault before it, which nothing ends
    is_short: bool = False  # `make test-full` plants it; the others `make alerts-check`

    @property
    def name(self) -> str:
        return f"{self.alert}-{self.part}" if self.part else self.alert


FAULTS: list[Fault] = []


@contextmanager
def moved(path: Path) -> Iterator[None]:
    """Have a file or folder away."""
    away = path.with_name(f"{path.name}.away")
    path.rename(away)
    yield
    away.rename(path)


def fault(
    alert: str,
    planted: str,
    *also: str,
    part: str = "",
    short: bool = False,
    goes_on: bool = False,
) -> Callable[[Callable[[Watched], Iterator[None]]], None]:
    """Register a fault by the generator that plants and ends it."""

    def register(plant: Callable[[Watched], Iterator[None]]) -> None:
        made = contextmanager(plant)
        FAULTS.append(Fault(alert, planted, made, part, frozenset(also), goes_on, short))

    return register


@fault("LetheAway", "the API process is killed (SIGKILL)", "LetheProcessAway", short=True)
def _(made: Watched) -> Iterator[None]:
    made.stop_api()
    yield
    made.restart_api()


@fault("LetheProcessAway", "the worker is killed (SIGKILL)", "LetheScheduleAway", short=True)
def _(made: Watched) -> Iterator[None]:
    made.stop_worker()
    yield
    made.restart_worker()


@fault("LetheQuotaReached", "a key sends requests until one is refused as `quota`", short=True)
def _(made: Watched) -> Iterator[None]:
    for _ in range(3 * QUOTA):
        try:
            made.submit()
        except ClientError as error:
            if error.slug != "quota":
                raise
            break
    else:
        raise AssertionError("the worker was faster than the quota")
    yield


@fault("LetheNotReady", "`keys/issuer.key` is moved away", part="keys", short=True)
def _(made: Watched) -> Iterator[None]:
    with moved(made.keys / "issuer.key"):
        yield


@fault("LetheNotReady", "`keys/log.guard.json` is moved away", part="guard")
def _(made: Watched) -> Iterator[None]:
    with moved(made.keys / "log.guard.json"):
        yield


@fault("LetheNotReady", "the folder of artifacts is moved away", part="artifacts")
def _(made: Watched) -> Iterator[None]:
    with moved(made.data / "artifacts"):
        yield


@fault(
    "LetheNotReady",
    "another process holds SQLite's lock and does nothing",
    "LetheLogLockSlow",
    "LetheScheduleAway",
    part="lock",
)
def _(made: Watched) -> Iterator[None]:
    with made.log_lock():
        yield


@fault("LethePartAway", "Redis is killed", "LetheNotReady", "LetheScheduleAway", part="broker")
def _(made: Watched) -> Iterator[None]:
    assert made.redis is not None
    made.redis.kill()
    made.redis.wait()
    yield
    made.start_redis()


@fault("LetheForeignMessages", "a message that is none of Lethe's is put into Redis")
def _(made: Watched) -> Iterator[None]:
    with Redis.from_url(made.processes.broker_url) as broker:
        broker.lpush("cpu", POISON["no JSON"])
    yield


@fault(
    "LetheQueueStands",
    "the worker is killed, a request is accepted, and the API's clock goes on by two hours",
    "LetheProcessAway",
    "LetheScheduleAway",
)
def _(made: Watched) -> Iterator[None]:
    made.stop_worker()
    request = made.submit()
    made.restart_api(LETHE_TEST_HOURS_AHEAD="2")
    yield
    made.restart_api()
    made.restart_worker()
    made.until_state(request, "certified")


@fault("LetheScheduleAway", "the worker is started without `--beat`")
def _(made: Watched) -> Iterator[None]:
    made.stop_worker()
    made.processes.start_worker(beat=False)
    yield
    made.restart_worker()


@contextmanager
def ahead(made: Watched, hours: int) -> Iterator[None]:
    """Have a request wait for an officer's review, and the API's clock go on.

    To that clock the lease of the schedule, which the worker's clock made, has expired.
    """
    request = made.submit(REVIEWED)
    made.restart_api(LETHE_TEST_HOURS_AHEAD=str(hours))
    yield
    made.restart_api()
    with made.requester() as client:
        client.withdraw(request)


@fault(
    "LetheRequestDueSoon",
    "a request waits for its review, and the API's clock goes on by 24 days",
    "LetheScheduleAway",
)
def _(made: Watched) -> Iterator[None]:
    with ahead(made, 24 * 24):
        yield


@fault(
    "LetheRequestOverdue",
    "a request waits for its review, and the API's clock goes on by 32 days",
    "LetheScheduleAway",
)
def _(made: Watched) -> Iterator[None]:
    with ahead(made, MONTH_H + 24):
        yield


def undecided(made: Watched) -> str:
    """Have a worker die at a request, so that it waits for a decision; return its id."""
    made.restart_worker("execute.computed=kill")
    request = made.submit()
    until(lambda: made.processes.worker.poll() is not None, "its death")  # type: ignore[union-attr]
    made.restart_worker()
    made.until_state(request, "needs-decision")
    return request


@fault(
    "LetheDecisionNeeded", "a worker dies at a request's execution, with `LETHE_MAX_TRIES=1`"
)
def _(made: Watched) -> Iterator[None]:
    request = undecided(made)
    yield
    with made.processes.operator() as operator:
        operator.decide(request, "retry", "the worker has more memory")
    made.until_state(request, "certified")


@fault(
    "LetheRequestFailed",
    "a worker dies at a request's execution, and an operator gives the request up",
    "LetheDecisionNeeded",
)
def _(made: Watched) -> Iterator[None]:
    request = undecided(made)
    with made.processes.operator() as operator:
        operator.decide(request, "abandon", "it kills each worker")
    made.until_state(request, "failed")
    yield


@fault(
    "LetheStageErrors",
    "the folder of artifacts is moved away, and a request for each of four models is sent",
    "LetheNotReady",
    "LetheDecisionNeeded",
)
def _(made: Watched) -> Iterator[None]:
    with moved(made.data / "artifacts"):
        requests = [made.submit(model) for model in MODELS]
        yield
    for request in requests:
        made.until_state(request, "certified")


@fault("LetheNoticesFail", "the endpoint of a webhook answers 410 Gone")
def _(made: Watched) -> Iterator[None]:
    with receiving() as receiver, made.processes.operator() as operator:
        for _ in range(10):
            receiver.answer(410)
        operator.add_webhook({"url": receiver.url, "events": ["request.received"]})
        made.until_state(made.submit(), "certified")
        yield


@fault(
    "LetheReceiptsMissing",
    "another process holds the guard's lock, and a request is sent",
    "LetheNotReady",
    "LetheLogLockSlow",
    "LetheStageErrors",
)
def _(made: Watched) -> Iterator[None]:
    with (made.keys / "log.guard.json").open("rb") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        with suppress(ClientError):  # log-unpublished: stored, without a receipt
            made.submit()
        yield


@fault(
    "LetheLogLockSlow",
    "another process holds SQLite's lock for two seconds again and again, while requests come",
    "LetheNotReady",
    "LetheScheduleAway",
    "LetheStageErrors",
)
def _(made: Watched) -> Iterator[None]:
    over = threading.Event()

    def hold() -> None:
        while not over.is_set():
            with made.log_lock():
                time.sleep(2)
            time.sleep(0.2)

    def send() -> None:
        while not over.is_set():
            with suppress(ClientError):
                made.submit(MODELS[1])

    threads = [threading.Thread(target=one) for one in (hold, send)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@fault(
    "LetheFollowerLate",
    "`lethe backup follow --every 1` is killed",
)
def _(made: Watched) -> Iterator[None]:
    into = made.processes.directory / "followed"
    with (made.processes.directory / "follower.log").open("ab") as output:
        follower = made.processes.start(
            ["backup", "follow", str(into), "--every", "1"], output, output
        )
    beats = made.data / "followers"
    until(lambda: beats.exists() and any(beats.glob("*.json")), "its first round", follower)
    os.killpg(follower.pid, signal.SIGKILL)
    follower.wait()
    yield
    shutil.rmtree(beats)  # it is given up


@contextmanager
def filled(made: Watched, least: int) -> Iterator[None]:
    """Write a file that leaves `least` bytes of the disk."""
    ballast = made.processes.directory / "ballast"
    with ballast.open("wb") as file:
        free = shutil.disk_usage(made.data).free
        os.posix_fallocate(file.fileno(), 0, max(1, free - least))
    yield
    ballast.unlink()


def limit(made: Watched) -> int:
    return int(made.processes.more["LETHE_MIN_FREE_BYTES"])


@fault("LetheDiskLow", "a file is written that leaves 3.9 times `LETHE_MIN_FREE_BYTES`")
def _(made: Watched) -> Iterator[None]:
    with filled(made, limit(made) * 39 // 10):
        yield


@fault(
    "LetheNotReady",
    "the API is started with a `LETHE_MIN_FREE_BYTES` above what the disk has",
    "LetheDiskLow",
    part="space",
)
def _(made: Watched) -> Iterator[None]:
    made.restart_api(LETHE_MIN_FREE_BYTES=str(1 << 60))
    yield
    made.restart_api()


@fault("LetheDiskFull", "a file grows by 20 MB each second")
def _(made: Watched) -> Iterator[None]:
    over, ballast = threading.Event(), made.processes.directory / "ballast"

    def grow() -> None:
        with ballast.open("wb") as file:
            for step in count(1):
                if over.wait(0.5):
                    return
                os.posix_fallocate(file.fileno(), 0, step * 10_000_000)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        ballast.unlink()


# The last two need a witness, and nothing ends a fork.


@fault("LetheWitnessesMissing", "the only witness is killed, and a request is sent")
def _(made: Watched) -> Iterator[None]:
    made.be_witnessed()
    made.until_state(made.submit(), "certified")
    assert made.witness is not None
    made.witness.kill()
    made.witness.wait()
    made.submit()
    yield
    made.start_witness()
    made.restart_worker()  # it would wait before it asks again


@fault(
    "LetheLogForked",
    "a copy of the installation goes on with other entries, and the witness cosigns these",
    "LetheNotReady",
    "LetheWitnessesMissing",
)
def _(made: Watched) -> Iterator[None]:
    with forked(made):
        yield


@fault(
    "LetheNotReady",
    "the same fork",
    "LetheLogForked",
    "LetheWitnessesMissing",
    part="witnesses",
    goes_on=True,
)
def _(_: Watched) -> Iterator[None]:
    yield


def is_witnessed(base_url: str) -> bool:
    """Return whether the latest checkpoint is the one that the witness cosigned."""
    latest, cosigned = (
        httpx2.get(f"{base_url}/v1/log/{name}", timeout=30).text.splitlines()[1:2]
        for name in ("checkpoint", "witnessed")
    )
    return latest == cosigned


@contextmanager
def forked(made: Watched) -> Iterator[None]:
    """Have the witness cosign what a copy logged; the log itself goes on after that."""
    processes = made.processes
    made.stop_api()
    made.stop_worker()
    copy = processes.directory.with_name("copy")
    shutil.copytree(processes.directory / "data", copy / "data")
    before, port, more = processes.directory, processes.port, dict(processes.more)
    processes.directory, processes.port = copy, 0
    del processes.more["LETHE_WORKER_METRICS"]
    try:
        processes.start_api()
        processes.start_worker()
        request = made.submit()
        made.until_state(request, "certified")
        until(lambda: is_witnessed(processes.base_url), "its cosignature", processes.worker)
    finally:
        processes.kill()
        processes.directory, processes.port, processes.more = before, port, more
    made.restart_api()
    made.restart_worker()
    for _ in range(2):
        made.until_state(made.submit(), "certified")
    yield
