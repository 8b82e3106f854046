"""Group commit: what waits while one transaction is being made durable shares the next.

A commit and its checkpoint cost a few fsyncs whatever they hold, so throughput grows with
the number of callers and the latency of each stays that of about two commits.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from app.ledger.receipt import UnpublishedError
from app.ledger.sequencer import Ledger, Transaction
from lethe.errors import LetheError

MAX_BATCH = 256  # items in one transaction; bounds how long others wait for the lock
# Whoever is answered together comes again together, one by one: taking the first of them alone
# would cost the others a transaction more. Less than the commit that it saves.
GATHER_S = 0.002

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741
# What runs items that arrived together: a result or an error for each, in their order.
Handler = Callable[[Transaction, Sequence[I]], Sequence[T | Exception]]
_Item = tuple[Handler[Any, Any], Any, "Future[Any]"]
_Outcome = tuple["Future[Any]", Any, BaseException | None]


class CommitterClosedError(LetheError):
    """The process is shutting down."""

    slug = "shutting-down"
    title = "The service is shutting down"
    status = 503


class GroupCommitter:
    """A thread that runs what many callers submit in few transactions, in order of arrival."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._expected = 1  # items, as many as were taken together the last time
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
        # In the caller's context: what it logs or queues carries the call's id.
        context = copy_context()
        return self.enqueue(_each, lambda tx: context.run(effect, tx)).result()

    def enqueue(self, handler: Handler[I, T], item: I) -> "Future[T]":
        """Have `handler` run `item` with others that wait for the same handler.

        The future has the result once it is durable and published, or the error that the
        handler returned for this item. A handler that raises is undone and fails all its items.

        Raises:
            CommitterClosedError: `close` was called.
        """
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise CommitterClosedError("the service is shutting down: send again later")
            self._waiting.append((handler, item, future))
            if len(self._waiting) in (1, self._expected):
                self._changed.notify()
        return future

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
                outcomes = [(future, None, error) for _, _, future in batch]
            for future, result, refused in outcomes:
                if refused is None and stored is None:
                    future.set_result(result)
                else:
                    future.set_exception(refused or stored)

    def _next_batch(self) -> list[_Item]:
        """Wait for work; an empty batch means that there is none and never will be.

        Whoever gave up waiting by then gets nothing done; after that it is too late to cancel.
        """
        with self._changed:
            while True:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._closed and len(self._waiting) < self._expected:
                    self._changed.wait_for(self._is_gathered, GATHER_S)
                self._expected = count = min(len(self._waiting), MAX_BATCH)
                taken = [self._waiting.popleft() for _ in range(count)]
                batch = [one for one in taken if one[2].set_running_or_notify_cancel()]
                if batch or not taken:
                    return batch

    def _is_gathered(self) -> bool:
        return self._closed or len(self._waiting) >= self._expected


def _run_batch(batch: list[_Item], outcomes: list[_Outcome], tx: Transaction) -> None:
    """Run neighbours of one handler together, each run in its own savepoint.

    A run that is alone needs none: if it raises, nothing of the transaction is stored.
    """
    runs = [(handler, list(run)) for handler, run in groupby(batch, key=lambda item: item[0])]
    if len(runs) == 1:
        ((handler, items),) = runs
        found = handler(tx, [item for _, item, _ in items])
        for (_, _, future), result in zip(items, found, strict=True):
            failed = result if isinstance(result, Exception) else None
            outcomes.append((future, result, failed))
        return
    for handler, items in runs:
        futures = [future for _, _, future in items]
        try:
            with tx.savepoint():
                results = handler(tx, [item for _, item, _ in items])
        except Exception as error:  # it belongs to these callers alone
            results = [error] * len(items)
        for future, result in zip(futures, results, strict=True):
            failed = result if isinstance(result, Exception) else None
            outcomes.append((future, result, failed))


def _each(
    tx: Transaction, effects: Sequence[Callable[[Transaction], T]]
) -> Sequence[T | Exception]:
    """Run each effect in its own savepoint."""
    found: list[T | Exception] = []
    for effect in effects:
        try:
            with tx.savepoint():
                found.append(effect(tx))
        except Exception as error:
            found.append(error)
    return found
