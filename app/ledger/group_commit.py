"""Group commit: what waits while one transaction is being made durable shares the next.

A commit and its checkpoint cost a few fsyncs whatever they hold, so throughput grows with
the number of callers and the latency of each stays that of about two commits.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from app.ledger.receipt import UnpublishedError
from app.ledger.sequencer import Ledger, Transaction
from lethe.errors import LetheError

MAX_BATCH = 256  # effects in one transaction; bounds how long others wait for the lock

T = TypeVar("T")
_Item = tuple[Callable[[Transaction], Any], "Future[Any]"]
_Outcome = tuple["Future[Any]", Any, BaseException | None]


class CommitterClosedError(LetheError):
    """The process is shutting down."""

    slug = "shutting-down"
    title = "The service is shutting down"
    status = 503


class GroupCommitter:
    """A thread that runs effects of many callers in few transactions, in order of arrival."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._thread.start()

    def submit(self, effect: Callable[[Transaction], T]) -> T:
        """Run `effect` and return its result once it is durable and published.

        An effect that raises is undone alone and its error raised here; the others of its
        batch are not disturbed. What else it may do, and what an error after the commit
        means, is as for `Ledger.transact`.

        Raises:
            CommitterClosedError: `close` was called.
        """
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise CommitterClosedError("the service is shutting down: send again later")
            self._waiting.append((effect, future))
            self._changed.notify()
        return future.result()

    def close(self) -> None:
        """Finish what was submitted and stop. Submitting afterwards is an error."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            outcomes: list[_Outcome] = []
            stored: UnpublishedError | None = None
            try:
                self._ledger.transact(partial(_run_batch, batch, outcomes))
            except UnpublishedError as error:  # committed: a refusal stays a refusal
                stored = error
            except BaseException as error:  # raised again in each caller
                outcomes = [(future, None, error) for _, future in batch]
            for future, result, refused in outcomes:
                if refused is None and stored is None:
                    future.set_result(result)
                else:
                    future.set_exception(refused or stored)

    def _next_batch(self) -> list[_Item]:
        """Wait for work; an empty batch means that there is none and never will be."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            count = min(len(self._waiting), MAX_BATCH)
            return [self._waiting.popleft() for _ in range(count)]


def _run_batch(batch: list[_Item], outcomes: list[_Outcome], tx: Transaction) -> None:
    """Run each effect in its own savepoint; nobody is told before the commit."""
    for effect, future in batch:
        try:
            with tx.savepoint():
                result = effect(tx)
        except Exception as error:  # it belongs to this caller alone
            outcomes.append((future, None, error))
        else:
            outcomes.append((future, result, None))
