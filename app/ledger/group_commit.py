"""Group commit: items that arrive while a transaction commits share the next one.

A commit and its checkpoint cost a few fsyncs regardless of size, so throughput grows with the
number of callers while the latency of each stays at about two commits.
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
from app.ledger.authority import require_authority
from app.ledger.receipt import UnpublishedError
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from lethe.errors import LetheError
from models.database.bulk import Rows, Statement

MAX_BATCH = 256  # items in one transaction; bounds how long others wait for the lock
# Callers that are answered together submit again together, one by one. Taking only those
# already waiting would split the callers into two groups that alternate, one transaction each.
# So the next batch waits for the others, for this share of the last transaction's duration.
GATHER_SHARE = 0.5
MOST_GATHER_S = 0.02  # upper limit, if the last transaction waited for a lock or a disk

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
I = TypeVar("I")  # noqa: E741
I_contra = TypeVar("I_contra", contravariant=True)


class Handler(Protocol[I_contra, T_co]):
    """Runs a batch of items that arrived together."""

    def opening(self, items: Sequence[I_contra]) -> Sequence[Statement]:
        """Return the statements to run for the items with the first message under the lock."""

    def __call__(
        self, tx: Transaction, items: Sequence[I_contra], answers: Rows
    ) -> Sequence[T_co | Exception]:
        """Return a result or an error for each item, in their order.

        answers: the rows of each statement of `opening`.
        """


# The last element is the caller's span, to link to the transaction's; None if traces are off.
_Item = tuple[Handler[Any, Any], Any, "Future[Any]", Any]
_Run = tuple[Handler[Any, Any], list[_Item]]
_Outcome = tuple["Future[Any]", Any, BaseException | None]


class CommitterClosedError(LetheError):
    """The process is shutting down."""

    slug, title, status = "shutting-down", "The service is shutting down", 503


class _Awaited(Future[T]):
    """A future whose outcome a coroutine awaits through `answer`."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[T] = self.loop.create_future()

    def pass_on(self) -> None:
        """Pass the outcome to the coroutine. Called on its loop."""
        if self.answer.done():  # the coroutine was cancelled
            return
        if (error := self.exception()) is None:
            self.answer.set_result(self.result())
        else:
            self.answer.set_exception(error)


class GroupCommitter:
    """A thread that batches many callers' items into few transactions, in order of arrival."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: deque[_Item] = deque()
        self._changed = threading.Condition()
        self._answered = 0  # items of the last transaction
        self._took_s = 0.0  # duration of the last transaction
        self._expected = 1  # items: callers of the last batch, and those already waiting
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of items that no batch has taken yet."""
        return len(self._waiting)

    def submit(self, effect: Callable[[Transaction], T]) -> T:
        """Run `effect` and return its result once it is durable and published.

        If an effect raises, only that effect is rolled back, and its error is raised here.
        Otherwise the rules of `Ledger.transact` apply, also for errors after the commit. Raises
        CommitterClosedError: `close` was called.
        """
        # In the caller's context: what it logs or queues carries the call's id.
        context = copy_context()

        def authorised(tx: Transaction) -> T:
            require_authority(tx.session)
            return effect(tx)

        def in_context(tx: Transaction) -> T:
            return context.run(authorised, tx)

        future: Future[T] = self.enqueue(_EACH, in_context)
        return future.result()

    def enqueue(self, handler: Handler[I, T], item: I) -> "Future[T]":
        """Have `handler` run `item` in a batch with others waiting for the same handler.

        The future resolves once the result is durable and published, or to the error that the
        handler returned for this item. If the handler raises, its writes are rolled back and
        all its items fail. Raises CommitterClosedError: `close` was called.
        """
        future: Future[T] = Future()
        self._append(handler, item, future)
        return future

    async def run(self, handler: Handler[I, T], item: I) -> T:
        """As `enqueue`, for a coroutine; all awaiters of a loop are resolved in one wake-up.

        Raises what `enqueue` raises, or the error that the handler returned for the item.
        """
        future: _Awaited[T] = _Awaited()
        self._append(handler, item, future)
        try:
            return await future.answer
        finally:
            future.cancel()  # if the caller was cancelled; no effect once there is a result

    def _append(self, handler: Handler[I, T], item: I, future: "Future[T]") -> None:
        with self._changed:
            if self._closed:
                raise CommitterClosedError("the service is shutting down: send again later")
            self._waiting.append((handler, item, future, traces.here()))
            if len(self._waiting) in (1, self._expected):
                self._changed.notify()

    def close(self) -> None:
        """Finish the submitted items and stop. Submitting afterwards is an error."""
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
            batch.extend(self._take(MAX_BATCH - len(batch)))  # arrived during the lock wait
            self._answered = len(batch)
            runs.extend((key, list(run)) for key, run in groupby(batch, lambda one: one[0]))
            if len(runs) > 1:  # each reads in its savepoint: one may write what another reads
                return ()
            return runs[0][0].opening([item for _, item, *_ in batch])

        links = [link for *_, link in batch if link is not None]
        begun = perf_counter()
        with traces.part("log batch", links=links) as span:
            self._ledger.transact(partial(_run_all, runs, outcomes), opening=opening)
            span.set("lethe.batch.items", len(batch))
        self._took_s = perf_counter() - begun

    def _take(self, most: int) -> list[_Item]:
        """Return up to `most` waiting items that are not cancelled; they no longer can be."""
        with self._changed:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), most))]
        return [one for one in taken if one[2].set_running_or_notify_cancel()]

    def _next_batch(self) -> list[_Item]:
        """Wait for work; an empty batch means that the committer is closed."""
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
    """Answer all callers. Each loop is woken only once, since it competes with this thread."""
    awaited: dict[asyncio.AbstractEventLoop, list[_Awaited[Any]]] = {}
    for future, result, refused in outcomes:
        if refused is None and stored is None:
            future.set_result(result)
        else:
            future.set_exception(refused or stored)
        if isinstance(future, _Awaited):
            awaited.setdefault(future.loop, []).append(future)
    for loop, futures in awaited.items():
        with suppress(RuntimeError):  # the loop is closed: no coroutine waits any more
            loop.call_soon_threadsafe(_pass_on, futures)


def _pass_on(futures: Sequence[_Awaited[Any]]) -> None:
    for future in futures:
        future.pass_on()


def _run_all(runs: Sequence[_Run], outcomes: list[_Outcome], tx: Transaction) -> None:
    """Run consecutive items of one handler together, each run in its own savepoint.

    A single run needs no savepoint: if it raises, the whole transaction is rolled back.
    """
    for handler, batch in runs:
        items = [item for _, item, *_ in batch]
        if len(runs) == 1:
            results = handler(tx, items, tx.answers)
        else:
            try:
                with tx.savepoint():
                    results = handler(tx, items, tx.read(handler.opening(items)))
            except Exception as error:  # it concerns only this run's callers
                results = [error] * len(items)
        for (_, _, future, _), result in zip(batch, results, strict=True):
            failed = result if isinstance(result, Exception) else None
            outcomes.append((future, result, failed))


class _Each:
    """Runs each effect in its own savepoint."""

    def opening(self, items: Sequence[Callable[[Transaction], Any]]) -> Sequence[Statement]:
        """Return no statements: effects do their own reads."""
        return ()

    def __call__(
        self, tx: Transaction, items: Sequence[Callable[[Transaction], Any]], answers: Rows
    ) -> Sequence[Any]:
        """Return the result or the error of each effect."""
        found: list[Any] = []
        for effect in items:
            try:
                with tx.savepoint():
                    found.append(effect(tx))
            except Exception as error:
                found.append(error)
        return found


_EACH = _Each()
