"""A stalled process, or a lock that is never released, blocks others only for a time."""

import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session

from app import steps
from app.ledger import guard as guards
from app.ledger import lock, sequencer, storage
from app.ledger.group_commit import GroupCommitter
from app.ledger.guard import GuardBusyError
from app.ledger.lock import LockStuckError
from app.ledger.receipt import UnpublishedError
from app.ledger.sequencer import Ledger, LogBusyError
from app.ledger.startup import load_ledger
from app.ledger.transaction import Transaction
from app.reconcile.fsck.run import fsck
from app.settings import Settings
from models.database import pipeline
from models.database import session as sessions
from models.database.session import make_engine, unavailable
from tests.app.ledger.samples import entry

STALL_S = 2


@pytest.fixture(autouse=True)
def _no_steps() -> Iterator[None]:
    yield
    steps.install(None)


@pytest.fixture
def bounded(ledger: Ledger, settings: Settings) -> Iterator[Callable[[], Ledger]]:
    """Open the same log like another process, with a stall limit of STALL_S."""
    engines: list[Engine] = []

    def opened() -> Ledger:
        engines.append(make_engine(settings.resolved_database_url, STALL_S))
        return load_ledger(settings, engines[-1])

    yield opened
    for engine in engines:
        engine.dispose()


def append(number: int) -> Callable[[Transaction], int]:
    return lambda tx: tx.append(entry(number))


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_writer_that_stands_still_loses_the_lock(bounded: Callable[[], Ledger]) -> None:
    frozen, other = bounded(), bounded()
    with Session(frozen.engine) as session:
        lock.take_lock(session)
        lock.require_lock_moves(other.engine, 60)
        began = time.monotonic()
        assert other.transact(append(1)) == 0
        assert time.monotonic() - began < sessions.WAIT_S
        with pytest.raises(Exception, match=r"(?i)terminat|closed|idle") as ended:
            session.connection().execute(text("SELECT 1"))
        assert unavailable(ended.value)
    assert fsck(other).ok


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_writer_may_wait_longer_for_the_lock_than_it_may_stall(
    bounded: Callable[[], Ledger], ledger: Ledger
) -> None:
    """Otherwise it fails just when the server ends the stalled writer that it waits for."""
    waiting = bounded()
    with Session(ledger.engine) as holder:  # without a limit
        lock.take_lock(holder)
        release = threading.Timer(STALL_S + 1, holder.rollback)
        release.start()
        assert waiting.transact(append(1)) == 0
        release.join()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_statement_of_a_writer_is_ended_after_its_wait_and_the_limit(
    bounded: Callable[[], Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "WAIT_S", 0.5)
    endless = bounded()
    with Session(endless.engine) as session, pytest.raises(DBAPIError) as ended:
        session.connection().execute(text("SELECT pg_sleep(60)"))
    assert unavailable(ended.value)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_sequencer_that_stands_still_between_its_messages_stores_nothing(
    bounded: Callable[[], Ledger], ledger: Ledger
) -> None:
    """The server's idle timer also runs after a message of several statements."""
    frozen, other = bounded(), ledger  # waits without a limit
    assert other.transact(append(0)) == 0

    def late(tx: Transaction) -> int:
        index = tx.append(entry(1))
        assert other.transact(append(2)) == index  # once the server has ended this one
        return index

    began = time.monotonic()
    with pytest.raises(DBAPIError) as lost:
        frozen.transact(late)
    assert time.monotonic() - began >= STALL_S
    assert unavailable(lost.value)
    assert other.latest().size == 2
    assert fsck(other).ok
    assert frozen.transact(append(3)) == 2
    assert fsck(other).ok


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("message", [1, 2, 3, 4])
@pytest.mark.parametrize("arrived", [False, True])
def test_a_message_of_which_no_answer_came_has_stored_all_or_nothing(
    bounded: Callable[[], Ledger],
    message: int,
    arrived: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lock and reads, entries and COMMIT, lock again, note and COMMIT: each is cut off."""
    cut, other = bounded(), bounded()
    assert cut.transact(append(0)) == 0
    receive, seen = pipeline.receive, 0

    def lose(connection: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen != message:
            return receive(connection)
        if arrived:
            receive(connection)
        raise psycopg.OperationalError("the connection was cut")

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "receive", lose)
        with pytest.raises((DBAPIError, UnpublishedError)):
            cut.transact(append(1))
    assert seen >= message
    stored = message > 2 or (message == 2 and arrived)
    if (
        message != 2 or arrived
    ):  # or the message was sent, and its commit may still be on its way
        with Session(other.engine) as session:
            assert storage.read_size(session) == 1 + stored
    assert other.transact(append(2)) in (1, 2)
    assert cut.transact(append(3)) in (2, 3)
    with Session(other.engine) as session:
        assert other.latest().size == storage.read_size(session)
    assert fsck(other).ok


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_readers_may_stand_still(bounded: Callable[[], Ledger]) -> None:
    other = bounded()
    with Session(sessions.reading(other.engine)) as session:
        size = storage.read_size(session)
        time.sleep(STALL_S + 1)
        assert storage.read_size(session) == size


def test_a_lock_that_is_not_given_back_is_waited_for_only_so_long(
    bounded: Callable[[], Ledger], ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "WAIT_S", 0.5)
    waiting = bounded()
    with Session(
        ledger.engine
    ) as holder:  # without a limit, like a migration, or another's session
        lock.take_lock(holder)
        holder.connection().execute(text("SELECT 1"))
        with pytest.raises(Exception, match=r"(?i)lock") as refused:
            waiting.transact(append(1))
        assert unavailable(refused.value)
        time.sleep(0.5)
        with pytest.raises(LockStuckError):
            lock.require_lock_moves(waiting.engine, 0.4)
    lock.require_lock_moves(waiting.engine, 0.4)
    assert waiting.transact(append(1)) == 0


def test_threads_of_a_process_wait_only_so_long(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequencer, "WAIT_S", 0.2)
    inside, leave = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> int:
        inside.set()
        assert leave.wait(60)
        return tx.append(entry(1))

    thread = threading.Thread(target=lambda: ledger.transact(slow))
    thread.start()
    assert inside.wait(60)
    with pytest.raises(LogBusyError):
        ledger.transact(append(2))
    leave.set()
    thread.join()
    assert ledger.transact(append(2)) == 1


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_who_lost_the_lock_after_the_guard_publishes_nothing(
    bounded: Callable[[], Ledger],
) -> None:
    """It is frozen there, and wakes up after others have signed a larger tree."""
    frozen, other = bounded(), bounded()
    seen: list[str] = []

    def freeze(step: str) -> None:
        if step == "checkpoint.guarded" and not seen:
            seen.append(step)
            with Session(other.engine) as session:
                session.connection().execute(
                    text(
                        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE granted "
                        "AND locktype = 'advisory' AND pid <> pg_backend_pid()"
                    )
                )
            other.transact(append(2))

    steps.install(freeze)
    with pytest.raises(UnpublishedError) as told:
        frozen.transact(append(1))
    assert told.value.__cause__ is not None
    assert unavailable(told.value.__cause__)
    assert seen
    assert other.latest().size == 2
    assert frozen.guard.read().size == 2
    assert fsck(other).ok
    assert frozen.transact(append(3)) == 2
    assert fsck(other).ok


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_who_was_frozen_before_the_guard_writes_no_older_line(
    bounded: Callable[[], Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, other = bounded(), bounded()
    advance = frozen.guard.advance

    def late(*given: object) -> None:
        monkeypatch.setattr(frozen.guard, "advance", advance)
        with Session(other.engine) as session:
            session.connection().execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE granted "
                    "AND locktype = 'advisory' AND pid <> pg_backend_pid()"
                )
            )
        other.transact(append(2))
        advance(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(frozen.guard, "advance", late)
    with pytest.raises(UnpublishedError):
        frozen.transact(append(1))
    assert frozen.guard.read().size == 2
    assert fsck(other).ok


def hold(path: Path) -> Callable[[], None]:
    file = path.open("rb")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file.close


def test_a_guard_that_is_not_given_back_delays_the_checkpoint_alone(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guards, "WAIT_S", 0.2)
    release = hold(ledger.guard.path)
    with pytest.raises(GuardBusyError):
        ledger.guard.require_free(0.1)
    with pytest.raises(UnpublishedError, match="is stored") as told:
        ledger.transact(append(1))
    assert isinstance(told.value.__cause__, GuardBusyError)
    assert "holds the lock of the signing guard" in caplog.text
    release()
    ledger.guard.require_free(0.1)
    assert ledger.transact(append(2)) == 1
    assert ledger.latest().size == 2
    assert fsck(ledger).ok


def test_in_a_batch_that_was_stored_a_refusal_stays_a_refusal(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "WAIT_S", 0.2)
    committer = GroupCommitter(ledger)

    def refuse(tx: Transaction) -> int:
        tx.append(entry(7))
        raise KeyError("already erased")

    gate, errors = threading.Event(), dict[str, BaseException]()

    def slow(tx: Transaction) -> int:
        assert gate.wait(60)
        return tx.append(entry(0))

    def call(name: str, effect: Callable[[Transaction], int]) -> None:
        try:
            committer.submit(effect)
        except BaseException as error:
            errors[name] = error

    calls = [("slow", slow), ("good", append(1)), ("bad", refuse)]
    threads = [threading.Thread(target=call, args=one) for one in calls]
    release = hold(ledger.guard.path)
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join()
    release()
    committer.close()
    assert {name: type(error) for name, error in errors.items()} == {
        "slow": UnpublishedError,
        "good": UnpublishedError,
        "bad": KeyError,
    }
    assert ledger.publish_checkpoint().size == 2
