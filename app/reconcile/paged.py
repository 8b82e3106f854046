"""A model's entries in pages: a process keeps each page's digest and reads leaves on demand.

A page is read by the columns `ref` and `event`, which write access to the database can change.
If the digest of the result differs from that of the leaves under the signed root, the page is
read again without the columns, from all entries between its first and its last.
"""

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import overload

from sqlalchemy import Engine
from sqlalchemy import select as columns
from sqlmodel import Session, col

from app.ledger.guard import ForkedError
from lethe.log.entries import MODEL_EVENT, EntryError, Leaf, parse_leaf
from models import LogEntry
from models.database.session import reading

COUNTED = ("model.", "audit.", "case.")  # prefixes of the events kept; not contributions
EVENTS = 128  # per page, at about 5 bytes each; a parsed leaf takes 1 to 2 kB
KEPT = 32  # parsed pages in memory, for all models
ROWS = 1000  # entries in memory at once if the columns were changed

Found = tuple[int, Leaf]


@dataclass(frozen=True, slots=True)
class EntryPage:
    """`count` entries of a list between the indexes `first` and `last`, and their digest."""

    first: int
    last: int
    count: int
    digest: bytes


class _List:
    """The pages of one or several events; the last page may not be full."""

    def __init__(self) -> None:
        self._full: list[EntryPage] = []
        self._hash, self._count, self._first, self._last = sha256(), 0, 0, 0

    def copy(self) -> "_List":
        other = _List()
        other._full, other._hash = list(self._full), self._hash.copy()
        other._count, other._first, other._last = self._count, self._first, self._last
        return other

    def add(self, index: int, data: bytes) -> None:
        self._hash.update(_framed(index, data))
        self._first, self._last = self._first if self._count else index, index
        self._count += 1
        if self._count == EVENTS:
            self._full.append(self._page())
            self._hash, self._count = sha256(), 0

    def pages(self) -> tuple[EntryPage, ...]:
        return (*self._full, self._page()) if self._count else tuple(self._full)

    def _page(self) -> EntryPage:
        return EntryPage(self._first, self._last, self._count, self._hash.digest())


class Pages:
    """The pages of one model: one list for all events, one per event and one per prefix."""

    def __init__(self) -> None:
        self._lists: dict[str, _List] = {}

    def copy(self) -> "Pages":
        """Return a copy that can be extended without changing these pages."""
        other = Pages()
        other._lists = {event: one.copy() for event, one in self._lists.items()}
        return other

    def add(self, index: int, event: str, data: bytes) -> None:
        """Add an entry, unless its event is not COUNTED."""
        if event.startswith(COUNTED):
            for name in ("", event[: event.index(".") + 1], event):
                self._lists.setdefault(name, _List()).add(index, data)

    def of(self, event: str) -> tuple[EntryPage, ...]:
        """Return the pages of an event, of a prefix ("audit."), or of all events ("")."""
        return self._lists[event].pages() if event in self._lists else ()


class PageCache:
    """A thread-safe LRU cache of KEPT parsed pages."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pages: OrderedDict[bytes, list[Found]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def get(self, digest: bytes, read: Callable[[], list[Found]]) -> list[Found]:
        """Return the page with this digest, from `read` if it is not cached."""
        with self._lock:
            if digest in self._pages:
                self._pages.move_to_end(digest)
                return self._pages[digest]
        found = read()
        with self._lock:
            self._pages[digest] = found
            while len(self._pages) > KEPT:
                self._pages.popitem(last=False)
        return found


class ModelEvents(Sequence[Found]):
    """(index, leaf) of a model's entries in order; access to an entry reads its page.

    Iteration and indexing raise ForkedError if stored leaves are not the signed ones.
    """

    def __init__(
        self,
        engine: Engine,
        cache: PageCache,
        ref: str,
        event: str,
        pages: tuple[EntryPage, ...],
    ) -> None:
        self._engine, self._cache = engine, cache
        self._ref, self._event, self._pages = ref, event, pages

    def __len__(self) -> int:
        return EVENTS * (len(self._pages) - 1) + self._pages[-1].count if self._pages else 0

    @overload
    def __getitem__(self, place: int) -> Found: ...
    @overload
    def __getitem__(self, place: slice) -> list[Found]: ...
    def __getitem__(self, place: int | slice) -> Found | list[Found]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        page, inner = divmod(range(len(self))[place], EVENTS)
        return self._read(self._pages[page])[inner]

    def __iter__(self) -> Iterator[Found]:
        for page in self._pages:
            yield from self._read(page)

    def before(self, log_index: int) -> int:
        """Return the number of entries before `log_index`."""
        return bisect_left(self, log_index, key=lambda found: found[0])

    def _read(self, page: EntryPage) -> list[Found]:
        return self._cache.get(page.digest, lambda: self._parsed(page))

    def _parsed(self, page: EntryPage) -> list[Found]:
        with Session(reading(self._engine)) as session:
            for rows in (self._by_columns(session, page), self._by_index(session, page)):
                listed = list(self._listed(rows))
                framed = b"".join(_framed(index, data) for index, data, _ in listed)
                if sha256(framed).digest() == page.digest:
                    return [(index, leaf) for index, _, leaf in listed]
        raise ForkedError(
            f"log entries {page.first} to {page.last} in the database are not those that were "
            "signed: restore its newest backup, then run `lethe log fsck`"
        )

    def _by_columns(self, session: Session, page: EntryPage) -> Iterable[tuple[int, bytes]]:
        found = _ROWS.where(
            col(LogEntry.ref) == self._ref, col(LogEntry.index).between(page.first, page.last)
        )
        if self._event.endswith("."):
            found = found.where(col(LogEntry.event).startswith(self._event, autoescape=True))
        elif self._event:
            found = found.where(col(LogEntry.event) == self._event)
        return ((index, data) for index, data in session.connection().execute(found))

    def _by_index(self, session: Session, page: EntryPage) -> Iterable[tuple[int, bytes]]:
        for start in range(page.first, page.last + 1, ROWS):
            end = min(start + ROWS - 1, page.last)
            found = _ROWS.where(col(LogEntry.index).between(start, end))
            yield from ((index, data) for index, data in session.connection().execute(found))

    def _listed(self, rows: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes, Leaf]]:
        """Parse rows and yield those whose leaves belong to the list."""
        for index, data in rows:
            with suppress(EntryError):  # changed: the digest will differ
                leaf = parse_leaf(data)
                event = leaf.event or ""
                own = self._event in ("", event) or (
                    self._event.endswith(".") and event.startswith(self._event)
                )
                if (leaf.kind, leaf.ref) == (MODEL_EVENT, self._ref) and (
                    own and event.startswith(COUNTED)
                ):
                    yield index, data, leaf


_ROWS = columns(col(LogEntry.index), col(LogEntry.leaf)).order_by(col(LogEntry.index))


def _framed(index: int, data: bytes) -> bytes:
    return index.to_bytes(8, "big") + len(data).to_bytes(4, "big") + data
