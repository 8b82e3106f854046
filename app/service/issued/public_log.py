"""The public part of the log: checkpoint, tiles, history and proofs."""

import base64
from collections.abc import Sequence

from sqlalchemy import and_, func
from sqlmodel import Session, col, select

from app.ledger.storage import LogDamagedError, NodeTable, read_leaves, read_row
from app.problems import NotFoundError
from app.schemas.log import (
    CompletenessView,
    ConsistencyView,
    EntriesPage,
    EntryView,
    InclusionView,
    RangeView,
)
from app.service.context import Services
from app.service.paging import parse_number
from app.witnesses.rows import Rows
from lethe.log.proofs import consistency_proof, inclusion_proof
from lethe.log.ranges import RangeProof, prove_range, range_members
from lethe.log.tiles import TILE_HEIGHT, TILE_WIDTH, encode_bundle, parse_tile_path, tile_width
from lethe.log.tree import leaf_hash, tree_root
from models import LogCheckpoint, LogEntry

EXAMINED = 10_000  # entries that one call with several filters examines: 10 ms on SQLite
# No tree is sorted by a filter's column, so no proof ties a filtered answer to the root.
UNPROVABLE = (
    "each entry is proven to be in the log; that the filter left none out cannot be proven: "
    "read the range without a filter, check its proof and filter it yourself "
    "(`lethe log list --prove` does)"
)


def latest_checkpoint(services: Services) -> str:
    """Return the signed note of the largest published tree, with lines of witnesses if any."""
    with services.reading() as session:
        note = _note(session, services, _latest(session).size)
    assert note is not None, "the largest tree is one that was signed"
    return note


def _note(session: Session, services: Services, size: int) -> str | None:
    """Return the signed note of a size, with lines of witnesses if any."""
    witnessed = Rows(services.ledger).note_of(session, size)
    if witnessed is not None:
        return witnessed
    row = session.get(LogCheckpoint, size)
    return None if row is None else row.note


def witnessed_checkpoint(services: Services) -> str:
    """Return the signed note of the largest tree that a quorum of witnesses cosigned.

    Raises NotFoundError if none was ever cosigned.
    """
    with services.reading() as session:
        found = Rows(services.ledger).witnessed(session)
    if found is None:
        raise NotFoundError("no quorum of witnesses has cosigned a checkpoint of this log")
    _, note = found
    return note


def latest_head(session: Session) -> tuple[str, int]:
    """Return the signed note of the largest published tree, and its size."""
    row = _latest(session)
    return row.note, row.size


def _latest(session: Session) -> LogCheckpoint:
    query = select(LogCheckpoint).order_by(col(LogCheckpoint.size).desc()).limit(1)
    return session.exec(query).one()


def tile(services: Services, path: str) -> bytes:
    """Return a tile or entry bundle of the published tree.

    Any width up to the published one is served: a client may hold an older checkpoint, and the
    narrower tile is still correct for this tree.

    Raises TileError: the path is no tile path; NotFoundError: the published tree does not reach
    that far.
    """
    ref = parse_tile_path(path)
    with services.reading() as session:
        size = _latest(session).size
        if ref.width > tile_width(ref.level or 0, ref.index, size):
            raise NotFoundError(
                "the published tree has no such tile, or not yet: read `checkpoint` "
                "for its size"
            )
        first = ref.index * TILE_WIDTH
        if ref.level is not None:
            # One query: a client that reads a whole log asks for thousands of tiles.
            return b"".join(read_row(session, TILE_HEIGHT * ref.level, first, ref.width))
        return encode_bundle(read_leaves(session, first, first + ref.width))


def entries(
    services: Services,
    after: str | None,
    limit: int,
    *,
    size: int | None = None,
    ref: str | None = None,
    event: str | None = None,
    kind: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> EntriesPage:
    """Return published entries in log order, each with its inclusion proof.

    Without a filter they are a range of the log, with a proof that it is complete.
    size: of the tree in which they are proven; None: the published one. since, until: days,
    both inclusive. For days, or several filters, a page is made from at most `EXAMINED`
    entries: it may be short, or empty, and yet have a next one.

    Raises:
        BadCursorError: The cursor is not a log index.
        NotFoundError: No published entry has that ref, that event or that kind, or the log
            has not `size` entries.
        LogDamagedError: The database lacks an entry.
    """
    last = None if after is None else parse_number(after)
    filtered = [one for one in (ref, event, kind, since, until) if one is not None]
    with services.reading() as session:
        published = _latest(session).size
        wanted = published if size is None else size
        if wanted > published:
            raise NotFoundError(
                f"the published tree has {published} entries: ask for a size up to that"
            )
        begin = 0 if last is None else last + 1
        values = [
            (name, value)
            for name, value in (("ref", ref), ("event", event), ("kind", kind))
            if value is not None
        ]
        shown, following = _matches(
            session, range(begin, wanted), limit, values, (since, until)
        )
        if not shown:  # an entry that was found has all values
            _check_held(session, values, wanted)
        start = 0 if last is None else min(last + 1, wanted)
        end = min(start + limit, wanted)
        if not filtered and [row.index for row in shown] != list(range(start, end)):
            raise LogDamagedError("the log lacks an entry: run `lethe log fsck`")
        proofs, whole = NodeTable(session, services.ledger.nodes).compute(
            lambda read: (
                [inclusion_proof(row.index, wanted, read) for row in shown],
                None if filtered else prove_range(start, end, wanted, read),
            )
        )
        note = _note(session, services, wanted)
    items = [
        EntryView(
            log_index=row.index,
            kind=row.kind,
            event=row.event,
            ref=row.ref,
            day=row.day,
            leaf=_base64(row.leaf),
            tree_size=wanted,
            hashes=[_base64(one) for one in hashes],
        )
        for row, hashes in zip(shown, proofs, strict=True)
    ]
    return EntriesPage(
        items=items,
        next=following,
        tree_size=wanted,
        checkpoint=note,
        completeness=_completeness(whole, wanted),
    )


def _check_held(session: Session, values: Sequence[tuple[str, str]], size: int) -> None:
    """Raise NotFoundError if no entry of a tree has one of these values."""
    for name, value in values:
        held = select(LogEntry.index).where(
            getattr(LogEntry, name) == value, LogEntry.index < size
        )
        if session.exec(held.limit(1)).first() is None:
            raise NotFoundError(
                "the log has no entry of this ref, event or kind: check how it is written"
            )


def _matches(
    session: Session,
    within: range,
    limit: int,
    values: Sequence[tuple[str, str]],
    days: tuple[str | None, str | None],
) -> tuple[list[LogEntry], str | None]:
    """Return the first entries within a range that match all filters, and the next cursor.

    One value is found by its index; on SQLite, that has the log's order too. No index has it
    for days or for two values: without a bound, a filter that matches nothing reads the whole
    log.
    """
    since, until = days
    index = col(LogEntry.index)
    ranged = (index > within.start - 1, index < within.stop)
    # By the narrowest: a reference has few entries.
    narrowed = ranged + tuple(getattr(LogEntry, name) == value for name, value in values[:1])
    others = [getattr(LogEntry, name) == value for name, value in values[1:]]
    if since is not None:
        others.append(col(LogEntry.day) >= since)
    if until is not None:
        others.append(col(LogEntry.day) <= until)
    if not others:
        query = select(LogEntry).where(*narrowed).order_by(index).limit(limit + 1)
        rows = list(session.exec(query))
        return rows[:limit], str(rows[limit - 1].index) if len(rows) > limit else None
    if _outside(session, since, until):
        return [], None
    # Once, and without leaves: PostgreSQL may sort all entries of a reference here, and the
    # leaves of 100,000 would be 40 MB, sorted in files.
    examined = session.exec(
        select(index, and_(*others)).where(*narrowed).order_by(index).limit(EXAMINED)
    ).all()
    found = [number for number, fits in examined if fits]
    shown = select(LogEntry).where(index.in_(found[:limit])).order_by(index)
    following: int | None = None
    if len(found) > limit:
        following = found[limit - 1]
    elif len(examined) == EXAMINED:
        following, _ = examined[-1]
    return list(session.exec(shown)), None if following is None else str(following)


def _outside(session: Session, since: str | None, until: str | None) -> bool:
    """Return whether the log has no entry of these days, by its first and last day."""
    first = session.exec(select(func.min(LogEntry.day))).one()
    last = session.exec(select(func.max(LogEntry.day))).one()
    if first is None:  # an empty log
        return True
    return (since is not None and since > last) or (until is not None and until < first)


def _completeness(whole: RangeProof | None, size: int) -> CompletenessView:
    if whole is None:
        return CompletenessView(provable=False, detail=UNPROVABLE, range=None)
    if whole.start == whole.end:
        words = f"no entry from {whole.start} on in a log of {size}"
    else:
        words = (
            f"entries {whole.start} to {whole.end - 1} of a log of {size}: `range` proves that "
            "none is left out"
        )
    members = RangeView.model_validate(range_members(whole))
    return CompletenessView(provable=True, detail=words, range=members)


def inclusion(services: Services, index: int, size: int | None) -> InclusionView:
    """Prove an entry's inclusion in a published tree.

    Raises NotFoundError if the index or size lies beyond the published tree.
    """
    with services.reading() as session:
        published = _latest(session).size
        wanted = published if size is None else size
        if not index < wanted <= published:
            raise NotFoundError(
                f"the published tree has {published} entries: ask for a size up to that, "
                "and for an index below the size"
            )
        (leaf,) = read_leaves(session, index, index + 1)
        root, hashes = NodeTable(session, services.ledger.nodes).compute(
            lambda read: (tree_root(wanted, read), inclusion_proof(index, wanted, read))
        )
        return InclusionView(
            log_index=index,
            tree_size=wanted,
            leaf_hash=_base64(leaf_hash(leaf)),
            root=_base64(root),
            hashes=[_base64(one) for one in hashes],
        )


def consistency(services: Services, old: int, new: int | None) -> ConsistencyView:
    """Prove that one published tree extends another.

    Raises NotFoundError if a size lies beyond the published tree, or old is after new.
    """
    with services.reading() as session:
        published = _latest(session).size
        wanted = published if new is None else new
        if not old <= wanted <= published:
            raise NotFoundError(
                f"`old` must be at most `new`, and `new` at most {published}, the "
                "published size"
            )
        old_root, new_root, hashes = NodeTable(session, services.ledger.nodes).compute(
            lambda read: (
                tree_root(old, read),
                tree_root(wanted, read),
                consistency_proof(old, wanted, read),
            )
        )
        return ConsistencyView(
            old=old,
            new=wanted,
            old_root=_base64(old_root),
            new_root=_base64(new_root),
            hashes=[_base64(one) for one in hashes],
        )


def check_published(services: Services) -> None:
    """Check that the latest checkpoint opens with the log's key and matches the tree.

    Raises LetheError if it does not.
    """
    with services.reading() as session:
        row = _latest(session)
        checkpoint = services.ledger.open(row.note)
        root = NodeTable(session).root_at(checkpoint.size)
    if checkpoint.root != root:
        raise NotFoundError(
            "the database does not hold the tree that was signed: run `lethe log fsck`"
        )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
