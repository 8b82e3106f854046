"""A writer transaction: it collects entries and rows and writes them with the commit."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, SQLModel

from app.ledger import storage
from app.ledger.entry_macs import EntryKey, EntryRow
from app.ledger.guard import ForkedError
from app.ledger.lock import LogState
from app.ledger.receipt import Appended
from app.ledger.tail import REMEDY, Tail
from app.steps import reached
from lethe.log.entries import Leaf
from models.database import bulk
from models.database.bulk import Rows, Statement


class Transaction:
    """A writer transaction under the log's lock; `now` is the database's time at its start.

    answers: the rows of the statements that ran when it began.
    """

    def __init__(self, session: Session, tail: Tail, key: EntryKey, state: LogState) -> None:
        self.session, self.now, self.answers = session, state.now, state.answers
        self._tail, self._key = tail, key
        self._entries: list[EntryRow] = []
        self._writes: list[Statement] = []
        self._rows: dict[tuple[type[SQLModel], tuple[str, ...]], list[dict[str, Any]]] = {}

    @property
    def next_index(self) -> int:
        """The index of the entry that is appended next."""
        return self._tail.peaks.size + len(self._entries)

    def append(self, leaf: bytes, said: Leaf | None = None) -> int:
        """Append an entry and return its log index.

        The index is final if the transaction commits. The rows are written just before the
        commit, so a query inside the transaction does not see them. said: the parsed leaf, if
        the caller has just formatted it.

        Raises EntryError: not an entry of a kind this log holds.
        """
        index = self.next_index
        self._entries.append(self._key.row(index, leaf, self.now.date(), said))
        return index

    def write(self, *statements: Statement) -> None:
        """Queue statements to run just before the commit, in order.

        They share one round trip with the entries. `flush` runs them at once.
        """
        self._writes += statements

    def insert(self, model: type[SQLModel], row: dict[str, Any]) -> None:
        """Queue a row for insertion just before the commit, with all others of its columns.

        Rows that it refers to must be in the session by then; the session does not know it.
        """
        self._rows.setdefault((model, tuple(row)), []).append(row)

    def read(self, statements: Sequence[Statement]) -> Rows:
        """Flush queued writes, then return the rows of each statement."""
        self.flush()
        return bulk.run(self.session.connection(), *statements) if statements else []

    def flush(self) -> None:
        """Run the statements queued by `write` and `insert`."""
        if writes := self._take_writes():
            bulk.run(self.session.connection(), *writes)

    def _take_writes(self) -> list[Statement]:
        if self._rows:
            self.session.flush()  # rows that the inserted rows refer to
            dialect = self.session.get_bind().dialect
            rows, self._rows = self._rows, {}
            self.write(*(bulk.insert(dialect, kind, own) for (kind, _), own in rows.items()))
        writes, self._writes = self._writes, []
        return writes

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Roll back the block's rows and entries if it raises, and re-raise."""
        self.flush()
        mark = len(self._entries)
        try:
            with self.session.begin_nested():
                self.session.connection()  # a session sends SAVEPOINT no earlier than this
                yield
                self.flush()
        except BaseException:
            del self._entries[mark:]
            self._writes.clear()
            self._rows.clear()
            raise

    def commit(self) -> Appended | None:
        """Write the appended entries and the nodes they complete, and commit.

        Returns the entries, None if there are none. The remaining writes and the commit are
        one message. Raises ForkedError: rows that no append wrote are in the entries' place.
        """
        self.session.flush()
        writes = self._take_writes()
        if not self._entries:
            self._run_and_commit(writes)
            return None
        start = self._tail.peaks.size
        nodes = [node for row in self._entries for node in self._tail.append(row.leaf, row.mac)]
        writes.append(storage.insertion_of_entries(self.session, self._entries))
        writes.append(storage.insertion_of_nodes(self.session, nodes))
        reached("ledger.appended")
        try:
            self._run_and_commit(writes)
        except IntegrityError as error:
            if not any(table in str(error.orig) for table in ("log_entries", "log_nodes")):
                raise  # from the effect's own writes
            raise ForkedError(
                f"rows that no append wrote lie at or above entry {start}: {REMEDY}"
            ) from None
        return Appended(start, tuple(row.leaf for row in self._entries))

    def _run_and_commit(self, writes: Sequence[Statement]) -> None:
        if writes:
            # The erasure journal must be durable before the commit, so its hook runs here.
            # `Session.commit` runs it again, too late, with nothing left to write.
            self.session.dispatch.before_commit(self.session)
            bulk.commit(self.session.connection(), *writes)
        self.session.commit()
