import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest
from sqlalchemy import text
from sqlmodel import Session, col, select

from app import steps
from app.ledger import group_commit
from app.ledger.group_commit import CommitterClosedError, GroupCommitter
from app.ledger.sequencer import Ledger
from app.ledger.startup import load_ledger
from app.ledger.transaction import Transaction
from app.reconcile.fsck.run import fsck
from app.settings import Settings
from app.steps import PlantedFaultError
from models import LogCheckpoint, Model
from models.database.session import make_engine, reading
from tests.app.ledger.samples import add_model, entry, stored_leaves


@pytest.fixture
def committer(ledger: Ledger) -> Iterator[GroupCommitter]:
    committer = GroupCommitter(ledger)
    yield committer
    committer.close()


def appending(number: int) -> Callable[[Transaction], int]:
    return lambda tx: tx.append(entry(number))


def behind_a_slow_one(
    committer: GroupCommitter,
    effects: list[Callable[[Transaction], int]],
    then: Callable[[], object] = lambda: None,
) -> list[Future[int]]:
    """Submit all effects, in order, while an earlier one still runs.

    then: called once the earlier one is answered.
    """
    running, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> int:
        running.set()
        assert go_on.wait(60)
        return tx.append(entry(10_000))

    with ThreadPoolExecutor(len(effects) + 1) as pool:
        first = pool.submit(committer.submit, slow)
        assert running.wait(60)
        futures: list[Future[int]] = []
        for effect in effects:
            futures.append(pool.submit(committer.submit, effect))
            while committer.waiting < len(futures):
                threading.Event().wait(0.001)
        go_on.set()
        first.result()
        then()
    return futures


def wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the committer wait for all callers that it expects."""
    monkeypatch.setattr(group_commit, "GATHER_SHARE", 1e9)
    monkeypatch.setattr(group_commit, "MOST_GATHER_S", 30.0)


def sizes(ledger: Ledger) -> list[int]:
    with Session(ledger.engine) as session:
        return list(session.exec(select(LogCheckpoint.size).order_by(col(LogCheckpoint.size))))


def test_whatever_waits_shares_one_transaction_and_one_checkpoint(
    ledger: Ledger, committer: GroupCommitter
) -> None:
    futures = behind_a_slow_one(committer, [appending(i) for i in range(40)])
    assert [future.result() for future in futures] == list(range(1, 41))
    assert sizes(ledger) == [0, 1, 41]
    assert stored_leaves(ledger.engine) == (entry(10_000), *(entry(i) for i in range(40)))
    assert fsck(ledger).ok


WAITS = text(
    "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
    "WHERE l.locktype = 'advisory' AND NOT l.granted AND d.datname = current_database()"
)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_what_arrives_while_another_process_has_the_lock_joins_the_batch(
    settings: Settings, ledger: Ledger
) -> None:
    engine = make_engine(settings.resolved_database_url)
    mine = load_ledger(settings, engine)
    committer = GroupCommitter(mine)
    has_lock, let_go = threading.Event(), threading.Event()

    def holding(tx: Transaction) -> int:
        has_lock.set()
        assert let_go.wait(60)
        return tx.append(entry(10_000))

    with ThreadPoolExecutor(20) as pool:
        assert pool.submit(committer.submit, appending(0)).result() == 0
        assert not mine.contended
        mine.contended = True  # as after a transaction that had to wait
        other = pool.submit(ledger.transact, holding)
        assert has_lock.wait(60)
        first = pool.submit(committer.submit, appending(1))
        with reading(engine).connect() as connection:  # until its batch waits for the lock
            while not connection.execute(WAITS).scalar_one():
                threading.Event().wait(0.001)
        more = [pool.submit(committer.submit, appending(i)) for i in range(2, 8)]
        while committer.waiting < len(more):
            threading.Event().wait(0.001)
        let_go.set()
        assert other.result() == 1
        assert first.result() == 2
        assert sorted(one.result() for one in more) == list(range(3, 9))
        # One batch: there is no checkpoint between the first and the last entry.
        assert not set(range(3, 9)) & set(sizes(ledger))
        assert pool.submit(committer.submit, appending(9)).result() == 9
        assert not mine.contended  # no other process held it
    committer.close()
    assert {1, 9, 10} <= set(sizes(ledger)) <= {0, 1, 2, 9, 10}
    assert fsck(ledger).ok
    engine.dispose()


def test_concurrent_callers_make_fewer_checkpoints_than_entries(
    ledger: Ledger, committer: GroupCommitter
) -> None:
    with ThreadPoolExecutor(16) as pool:
        indices = list(pool.map(lambda i: committer.submit(appending(i)), range(160)))
    leaves = stored_leaves(ledger.engine)
    assert sorted(indices) == list(range(160))
    assert [leaves[index] for index in indices] == [entry(i) for i in range(160)]
    assert len(sizes(ledger)) - 1 <= 80
    for index in indices:
        assert ledger.receipt(index).leaf == leaves[index]


def test_the_caller_gets_its_receipt_when_submit_returns(
    ledger: Ledger, committer: GroupCommitter
) -> None:
    index = committer.submit(appending(0))
    assert ledger.receipt(index).leaf == entry(0)


def test_a_failing_effect_disturbs_nobody_else(
    ledger: Ledger, committer: GroupCommitter
) -> None:
    def named(ref: str) -> Callable[[Transaction], int]:
        def effect(tx: Transaction) -> int:
            index = tx.append(entry(len(ref)))
            add_model(tx.session, ref)
            return index

        return effect

    def undecided(tx: Transaction) -> int:
        tx.append(entry(500))
        add_model(tx.session, "undecided")
        raise KeyError("changed my mind")

    futures = behind_a_slow_one(
        committer, [named("a"), undecided, named("bb"), named("a"), named("ccc")]
    )
    assert futures[0].result() == 1
    assert isinstance(futures[1].exception(), KeyError)
    assert futures[2].result() == 2
    assert "UNIQUE" in str(futures[3].exception()).upper()  # the database's own refusal
    assert futures[4].result() == 3
    assert stored_leaves(ledger.engine) == (entry(10_000), entry(1), entry(2), entry(3))
    with Session(ledger.engine) as session:
        assert set(session.exec(select(Model.ref))) == {"a", "bb", "ccc"}
    assert fsck(ledger).ok


@pytest.mark.parametrize(
    ("step", "durable"), [("ledger.appended", False), ("checkpoint.guarded", True)]
)
def test_a_failed_commit_is_every_callers_error_and_the_thread_goes_on(
    ledger: Ledger, committer: GroupCommitter, *, step: str, durable: bool
) -> None:
    steps.plant(f"{step}@2=raise")  # the first call is the slow one's
    try:
        futures = behind_a_slow_one(committer, [appending(i) for i in range(3)])
        errors = [future.exception() for future in futures]
    finally:
        steps.install(None)
    assert [type(error) for error in errors] == [PlantedFaultError] * 3
    assert len(stored_leaves(ledger.engine)) == (4 if durable else 1)
    assert committer.submit(appending(9)) == (4 if durable else 1)
    assert fsck(ledger).ok


def test_who_was_answered_together_is_waited_for(
    ledger: Ledger, committer: GroupCommitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first caller to return does not get a transaction of its own."""
    first = behind_a_slow_one(committer, [appending(number) for number in range(3)])
    assert sorted(future.result() for future in first) == [1, 2, 3]
    wait_long(monkeypatch)
    with ThreadPoolExecutor(3) as pool:
        again = []
        for number in range(3):
            again.append(pool.submit(committer.submit, appending(10 + number)))
            threading.Event().wait(0.05)
        assert sorted(future.result(20) for future in again) == [4, 5, 6]
    assert sizes(ledger) == [0, 1, 4, 7]


def test_who_waits_meanwhile_shares_the_next_with_who_is_answered(
    ledger: Ledger, committer: GroupCommitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two alternating groups would need two transactions instead of one."""
    wait_long(monkeypatch)
    again = partial(committer.submit, appending(2))  # by a caller that was just answered
    waiting = behind_a_slow_one(committer, [appending(0), appending(1)], again)
    assert sorted(future.result() for future in waiting) == [1, 2]
    assert sizes(ledger) == [0, 1, 4]


def test_nobody_is_waited_for_longer_than_a_moment(
    ledger: Ledger, committer: GroupCommitter
) -> None:
    for future in behind_a_slow_one(committer, [appending(0), appending(1)]):
        future.result()
    assert committer.submit(appending(2)) == 3
    assert sizes(ledger) == [0, 1, 3, 4]


def test_a_batch_is_bounded(
    ledger: Ledger, committer: GroupCommitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "MAX_BATCH", 4)
    behind_a_slow_one(committer, [appending(i) for i in range(10)])
    assert sizes(ledger) == [0, 1, 5, 9, 11]


def test_close_finishes_what_was_submitted_and_then_refuses(ledger: Ledger) -> None:
    committer = GroupCommitter(ledger)
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(committer.submit, appending(i)) for i in range(8)]
        closing = pool.submit(committer.close)
    closing.result()
    answered = [future for future in futures if future.exception() is None]
    refused = [future for future in futures if future.exception() is not None]
    assert all(isinstance(future.exception(), CommitterClosedError) for future in refused)
    assert len(stored_leaves(ledger.engine)) == len(answered)
    with pytest.raises(CommitterClosedError):
        committer.submit(appending(9))
