"""Pages: the upper part of a retained set's tree, stored in the table `retained_pages`.

A prefix that more than CAP commitments share has a page, with a part for each next byte.
Below that, the commitments themselves are read from `records`. So a deletion reads a few pages
and at most CAP commitments of a set of any size, and the pages depend on the set alone, not on
the order in which records were added and deleted.

Pages are not trusted: a tree checks what it loads, from the top down, against the version's
root in the log.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct

from sqlalchemy import delete, insert
from sqlmodel import Session, col, select

from lethe.certificates.errors import RemovalError
from lethe.certificates.retained_tree import OTHER, Leaf, Part, RetainedTree, divided
from models import Record, RetainedPage
from models.database.session import chunks

CAP = 1024  # commitments: to read and hash them takes about 3 ms
FETCH = 1000  # rows in memory at once
_ENTRY = Struct(">BQ32s")


@dataclass(frozen=True, slots=True)
class RetainedSet:
    """A retained set, computed before the writer transaction: its root, size and pages.

    pages: those to write; None for one to delete. whole: all other pages are deleted.
    """

    root: bytes
    count: int
    pages: Mapping[bytes, Sequence[Part] | None]
    whole: bool

    @classmethod
    def of(cls, known: Iterable[Leaf]) -> "RetainedSet":
        """Compute the set from all its leaves, in ascending order.

        The leaves are streamed in one pass. Raises RemovalError if they do not ascend.
        """
        part, pages = divided(known, CAP)
        return cls(part.hash, part.count, pages, True)

    @classmethod
    def left(cls, tree: RetainedTree) -> "RetainedSet":
        """Return the set of a changed tree."""
        return cls(tree.root, tree.count, tree.divided(CAP), tree.whole)


def encode_page(parts: Sequence[Part]) -> bytes:
    """Return the body of a page."""
    return b"".join(_ENTRY.pack(part.prefix[-1], part.count, part.hash) for part in parts)


def decode_page(prefix: bytes, body: bytes) -> list[Part]:
    """Return the parts of a page. Raises RemovalError if its length is not that of a page."""
    if not body or len(body) % _ENTRY.size:
        raise RemovalError(OTHER)
    return [
        Part(prefix + bytes([byte]), count, root)
        for byte, count, root in _ENTRY.iter_unpack(body)
    ]


def load(session: Session, model_id: int, prefix: bytes) -> list[Part] | list[Leaf]:
    """Return the parts of a prefix's page or, if it has none, the leaves of its records."""
    if (body := page(session, model_id, prefix)) is not None:
        return decode_page(prefix, body)
    return list(leaves(session, model_id, prefix))


def page(session: Session, model_id: int, prefix: bytes) -> bytes | None:
    """Return the body of a prefix's page, None if it has none."""
    query = select(RetainedPage.body).where(
        RetainedPage.model_id == model_id, RetainedPage.prefix == prefix
    )
    found = session.exec(query).first()
    return None if found is None else bytes(found)


def leaves(session: Session, model_id: int, prefix: bytes = b"") -> Iterator[Leaf]:
    """Yield the leaves of a model's records in ascending order, FETCH rows in memory."""
    query = select(Record.commitment, Record.content).where(Record.model_id == model_id)
    if prefix:
        query = query.where(col(Record.commitment) >= prefix)
        if (end := _end(prefix)) is not None:
            query = query.where(col(Record.commitment) < end)
    query = query.order_by(col(Record.commitment)).execution_options(yield_per=FETCH)
    for commitment, content in session.exec(query):
        yield bytes(commitment), bytes(content)


def write(session: Session, model_id: int, retained: RetainedSet) -> None:
    """Replace the pages that a set changed."""
    connection = session.connection()
    own = delete(RetainedPage).where(col(RetainedPage.model_id) == model_id)
    if retained.whole:
        connection.execute(own)
    else:
        for chunk in chunks(list(retained.pages)):
            connection.execute(own.where(col(RetainedPage.prefix).in_(chunk)))
    fresh = [
        {"model_id": model_id, "prefix": prefix, "body": encode_page(parts)}
        for prefix, parts in retained.pages.items()
        if parts is not None
    ]
    if fresh:
        connection.execute(insert(RetainedPage), fresh)


def _end(prefix: bytes) -> bytes | None:
    """Return the least bytes above all that begin with a prefix, None if there are none."""
    short = prefix.rstrip(b"\xff")
    return short[:-1] + bytes([short[-1] + 1]) if short else None
