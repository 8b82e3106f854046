"""Faults of processes and of the parts that they need."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest
from redis import Redis
from redis.exceptions import AuthenticationError

from lethe.client.errors import ClientError
from tests.app.test_broker import POISON
from tests.e2e.alerts.fault import Faults, Said
from tests.e2e.alerts.installation import QUOTA, REVIEWED, Watched

FAULTS = Faults()


@contextmanager
def moved(path: Path) -> Iterator[None]:
    """Have a file or folder away."""
    away = path.with_name(f"{path.name}.away")
    path.rename(away)
    try:
        yield
    finally:
        away.rename(path)


@FAULTS.add(
    ("LetheAway", "LetheProcessAway"),
    "the API process is killed (SIGKILL)",
    "it is started",
    short=True,
    blind=True,
)
def _(made: Watched) -> Iterator[None]:
    made.stop_api()
    yield
    with pytest.raises(httpx2.HTTPError):
        httpx2.get(f"{made.processes.base_url}/healthz", timeout=5)
    made.restart_api()


@FAULTS.add(
    "LetheProcessAway",
    "the worker is killed (SIGKILL)",
    "it is started",
    "LetheScheduleAway",
    short=True,
)
def _(made: Watched) -> Iterator[None]:
    made.stop_worker()
    yield
    made.restart_worker()


@FAULTS.add(
    "LetheQuotaReached",
    "a key has as many requests in review as it may have, and sends another one",
    "`lethe case list` names the key; its requests are withdrawn",
    short=True,
)
def _(made: Watched) -> Iterator[None]:
    waiting = [made.submit(REVIEWED) for _ in range(QUOTA)]
    with pytest.raises(ClientError) as refused:
        made.submit(REVIEWED)
    assert refused.value.slug == "quota"
    yield
    listed = made.listed("case", "list")
    alices = {one["ref"] for one in listed if one["requester"] == "alice"}
    assert alices == {made.refs[one] for one in waiting}
    with made.requester() as client:
        for request in waiting:
            client.withdraw(request)


def unready(made: Watched, part: str, path: Path) -> Iterator[None]:
    """Have a file away; the service's log names the part, once."""
    said = Said.by(made, "api")
    with moved(path):
        yield
        assert said.times(f"not ready: {part}: ") == 1
        assert made.unready() == {part}


@FAULTS.add(
    "LetheNotReady of keys",
    "`keys/issuer.key` is moved away",
    "the service's log names it; the file is put back",
    short=True,
)
def _(made: Watched) -> Iterator[None]:
    yield from unready(made, "keys", made.keys / "issuer.key")


@FAULTS.add(
    "LetheNotReady of guard",
    "`keys/log.guard.json` is moved away",
    "the service's log names it; the file is put back",
)
def _(made: Watched) -> Iterator[None]:
    yield from unready(made, "guard", made.keys / "log.guard.json")


@FAULTS.add(
    "LetheNotReady of artifacts",
    "the folder of artifacts is moved away",
    "the service's log names it; the folder is put back",
)
def _(made: Watched) -> Iterator[None]:
    yield from unready(made, "artifacts", made.data / "artifacts")


@FAULTS.add(
    ("LetheNotReady of log", "LetheNotReady of guard"),
    "a byte of a hash of the tree is changed in the database",
    "`lethe log fsck` finds it; the byte is restored",
)
def _(made: Watched) -> Iterator[None]:
    said = Said.by(made, "api")
    with closing(sqlite3.connect(made.data / "lethe.db", isolation_level=None)) as database:
        kept = database.execute(
            'SELECT hash, level, "index" FROM log_nodes ORDER BY level DESC, "index" LIMIT 1'
        ).fetchone()
        rewrite(database, bytes([kept[0][0] ^ 1]) + kept[0][1:], *kept[1:])
        try:
            yield
            assert said.times("not ready: log: ") == 1
            assert made.processes.cli("log", "fsck", check=False).returncode == 1
        finally:
            rewrite(database, *kept)


def rewrite(database: sqlite3.Connection, node: bytes, level: int, index: int) -> None:
    """Write the hash of a node, which the schema forbids everybody whom it can."""
    ((name, trigger),) = database.execute(
        "SELECT name, sql FROM sqlite_master WHERE tbl_name = 'log_nodes' "
        "AND type = 'trigger' AND sql LIKE '%BEFORE UPDATE%'"
    )
    write = 'UPDATE log_nodes SET hash = ? WHERE level = ? AND "index" = ?'
    database.execute("BEGIN IMMEDIATE")
    database.execute(f"DROP TRIGGER {name}")
    database.execute(write, (node, level, index))
    database.execute(trigger)
    database.execute("COMMIT")


@FAULTS.add(
    "LetheNotReady of lock",
    "another process holds SQLite's lock and does nothing",
    "the service's log names it; that process is ended",
    "LetheLogLockSlow",
    "LetheScheduleAway",
)
def _(made: Watched) -> Iterator[None]:
    said = Said.by(made, "api")
    with made.log_lock():
        yield
        assert said.times("not ready: lock: ") == 1


@FAULTS.add(
    ("LethePartAway of broker", "LetheNotReady of broker"),
    "Redis is killed",
    "`/readyz` names it; it is started",
    "LetheScheduleAway",
)
def _(made: Watched) -> Iterator[None]:
    assert made.redis is not None
    made.redis.kill()
    made.redis.wait()
    yield
    assert made.unready() == {"broker"}
    made.start_redis()


@FAULTS.add(
    "LetheForeignMessages",
    "a message that is none of Lethe's is put into Redis",
    "Redis's password is changed, which locks out whoever wrote it",
)
def _(made: Watched) -> Iterator[None]:
    before = made.processes.broker_url
    with Redis.from_url(before) as broker:
        broker.lpush("cpu", POISON["no JSON"])
        yield
        broker.config_set("requirepass", "another")
    made.processes.broker_url = before.replace("redis://", "redis://:another@")
    with Redis.from_url(before) as broker, pytest.raises(AuthenticationError):
        broker.lpush("cpu", POISON["no JSON"])
    made.restart_api()
    made.restart_worker()


@FAULTS.add(
    "LetheScheduleAway",
    "the worker is started without `--beat`",
    "it is started with `--beat`",
)
def _(made: Watched) -> Iterator[None]:
    made.stop_worker()
    made.processes.start_worker(beat=False)
    yield
    made.restart_worker()
