"""Group commit: what waits while one transaction is being made durable shares the next.

A commit and its checkpoint cost a few fsyncs whatever they hold, so throughput grows with
the number of callers and the latency of each stays that of about two commits.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import groupby
from time import perf_counter
from typing import Any, Protocol, TypeVar

from app import traces
from app.ledger.receipt import UnpublishedError
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from lethe.errors import LetheError
from models.database.bulk import Rows, Statement

MAX_BATCH = 256  # items in one transaction; bounds how long others wait for the lock
# Whoever is answered together comes again together, one by one. Taking those alone who waited
# meanwhile would make two groups of all callers, which take turns at the price of a transaction
# each. So the others are waited for, for a share of what the last transaction took.
GATHER_SHARE = 0.5
MOST_GATHER_S = 0.02  # also after one that waited for a lock or a disk

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
I = TypeVar("I")  # noqa: E741
I_contra = TypeVar("I_contra", contravariant=True)


class Handler(Protocol[I_contra, T_co]):
    """What runs items that arrived together."""

    def opening(self, items: Sequence[I_contra]) -> Sequence[Statement]:
        """Return what is to be read for the items with the first message under the lock."""

    def __call__(
        self, tx: Transaction, items: Sequence[I_contra], answers: Rows
    ) -> Sequence[T_co | Exception]:
        """Return a result or an error for each item, in their order.

        answers: the rows of each statement of `opening`.
        """


# The last is the span that a transaction's is linked to, None where traces are off.
_Item = tuple[Handler[Any, Any], Any, "Future[Any]", Any]
_Run = tuple[Handler[Any, Any], list[_Item]]
_Outcome = tuple["Future[Any]", Any, BaseException | None]


class CommitterClosedError(LetheError):
    """The process is shutting down."""

    slug = "shutting-down"
    title = "The service is shutting down"
    status = 503


class _Awaited(Future[T]):
    """A future that a coroutine waits for by `answer`."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[T] = self.loop.create_future()

    def pass_on(self) -> None:
        """Give the coroutine what came, on its loop."""
        if self.answer.done():  # it gave up
            return
        if (error := self.exception()) is None:
            self.answer.set_result(self.result())
        else:
            self.answer.set_exception(error)


class GroupCommitter:
    """A thread that runs what many callers submit in few transactions, in order of arrival."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._answered = 0  # items of the last transaction
        self._took_s = 0.0  # that transaction
        self._expected = 1  # items: who was answered, and who waited then
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

        def in_context(tx: Transaction) -> T:
            return context.run(effect, tx)

        future: Future[T] = self.enqueue(_EACH, in_context)
        return future.result()

    def enqueue(self, handler: Handler[I, T], item: I) -> "Future[T]":
        """Have `handler` run `item` with others that wait for the same handler.

        The future has the result once it is durable and published, or the error that the
        handler returned for this item. A handler that raises is undone and fails all its items.

        Raises:
            CommitterClosedError: `close` was called.
        """
        future: Future[T] = Future()
        self._append(handler, item, future)
        return future

    async def run(self, handler: Handler[I, T], item: I) -> T:
        """As `enqueue`, for a coroutine; all that a loop waits for is answered at once.

        Raises what `enqueue` raises, and the error that the handler returned for the item.
        """
        future: _Awaited[T] = _Awaited()
        self._append(handler, item, future)
        try:
            return await future.answer
        finally:
            future.cancel()  # of who gave up: one that is answered stays so

    def _append(self, handler: Handler[I, T], item: I, future: "Future[T]") -> None:
        with self._changed:
            if self._closed:
                raise CommitterClosedError("the service is shutting down: send again later")
            self._waiting.append((handler, item, future, traces.here()))
            if len(self._waiting) in (1, self._expected):
                self._changed.notify()

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
                self._transact(batch, outcomes)
            except UnpublishedError as error:  # committed: a refusal stays a refusal
                stored = error
            except BaseException as error:  # raised again in each caller
                outcomes = [(future, None, error) for _, _, future, _ in batch]
            _answer(outcomes, stored)

    def _transact(self, batch: list[_Item], outcomes: list[_Outcome]) -> None:
        runs: list[_Run] = []

        def opening() -> Sequence[Statement]:
            batch.extend(self._take(MAX_BATCH - len(batch)))  # while the lock was waited for
            self._answered = len(batch)
            runs.extend((key, list(run)) for key, run in groupby(batch, lambda one: one[0]))
            if len(runs) > 1:  # they read in their savepoints: one may write what another reads
                return ()
            return runs[0][0].opening([item for _, item, *_ in batch])

        links = [link for *_, link in batch if link is not None]
        begun = perf_counter()
        with traces.part("log batch", links=links) as span:
            self._ledger.transact(partial(_run_all, runs, outcomes), opening=opening)
            span.set("lethe.batch.items", len(batch))
        self._took_s = perf_counter() - begun

    def _take(self, most: int) -> list[_Item]:
        """Return what waits, but for what its caller has given up; then it is too late to."""
        with self._changed:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), most))]
        return [one for one in taken if one[2].set_running_or_notify_cancel()]

    def _next_batch(self) -> list[_Item]:
        """Wait for work; an empty batch means that there is none and never will be."""
        while True:
            with self._changed:
                callers = self._answered + len(self._waiting)
                self._expected = min(max(1, callers), MAX_BATCH)
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._closed and len(self._waiting) < self._expected:
                    most = min(GATHER_SHARE * self._took_s, MOST_GATHER_S)
                    self._changed.wait_for(self._is_gathered, most)
                ended = not self._waiting
            batch = self._take(MAX_BATCH)
            if batch or ended:
                return batch

    def _is_gathered(self) -> bool:
        return self._closed or len(self._waiting) >= self._expected


def _answer(outcomes: Sequence[_Outcome], stored: UnpublishedError | None) -> None:
    """Answer all callers. Each loop is woken once: it would compete with this thread."""
    awaited: dict[asyncio.AbstractEventLoop, list[_Awaited[Any]]] = {}
    for future, result, refused in outcomes:
        if refused is None and stored is None:
            future.set_result(result)
        else:
            future.set_exception(refused or stored)
        if isinstance(future, _Awaited):
            awaited.setdefault(future.loop, []).append(future)
    for loop, futures in awaited.items():
        with suppress(RuntimeError):  # it is closed: nobody waits any more
            loop.call_soon_threadsafe(_pass_on, futures)


def _pass_on(futures: Sequence[_Awaited[Any]]) -> None:
    for future in futures:
        future.pass_on()


def _run_all(runs: Sequence[_Run], outcomes: list[_Outcome], tx: Transaction) -> None:
    """Run neighbours of one handler together, each run in its own savepoint.

    A run that is alone needs none: if it raises, nothing of the transaction is stored.
    """
    for handler, batch in runs:
        items = [item for _, item, *_ in batch]
        if len(runs) == 1:
            results = handler(tx, items, tx.answers)
        else:
            try:
                with tx.savepoint():
                    results = handler(tx, items, tx.read(handler.opening(items)))
            except Exception as error:  # it belongs to these callers alone
                results = [error] * len(items)
        for (_, _, future, _), result in zip(batch, results, strict=True):
            failed = result if isinstance(result, Exception) else None
            outcomes.append((future, result, failed))


class _Each:
    """Runs each effect in its own savepoint."""

    def opening(self, items: Sequence[Callable[[Transaction], Any]]) -> Sequence[Statement]:
        """Return nothing: effects read for themselves."""
        return ()

    def __call__(
        self, tx: Transaction, items: Sequence[Callable[[Transaction], Any]], answers: Rows
    ) -> Sequence[Any]:
        """Return the result or the error of each."""
        found: list[Any] = []
        for effect in items:
            try:
                with tx.savepoint():
                    found.append(effect(tx))
            except Exception as error:
                found.append(error)
        return found


_EACH = _Each()
