"""Restores entries that a database lost, from mirrors of the log.

The signing guard has the log's size and root. Nothing is written or signed before all entries
up to that size are present and hash to that root. A mirror with a newer checkpoint by the log's
key is trusted over the guard, which must then come from a backup; not if the key is revoked by
these entries, since a thief could have signed it. A witness's last checkpoint counts like a
mirror's; a witness that shows none may have cosigned more than the mirrors have. Rows get their
MACs only after this proof that the log's key signed each of them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Generic, TypeVar

from sqlmodel import Session

from app.ledger import storage
from app.ledger.entry_macs import EntryRow
from app.ledger.guard import ForkedError
from app.ledger.named import spanned_by
from app.ledger.sequencer import Ledger
from app.ledger.storage import latest_checkpoint, read_leaves, read_size
from lethe.errors import LetheError
from lethe.log.checkpoint import Checkpoint, CheckpointError
from lethe.log.entries import Leaf, parse_leaf
from lethe.log.fetch import Fetch, LogError
from lethe.log.follow import read_log
from lethe.log.key_history import KeyHistoryError
from lethe.log.log_keys import LogKeys
from lethe.log.note import NoteError
from lethe.log.tree import Peaks, leaf_hash
from models import LogCheckpoint, LogEntry
from models.database import bulk

T = TypeVar("T")
PAGE = 250  # rows in one statement
SUCCEED = "begin a log that names this one: `lethe log init --succeeds KEYS`"
EVERY = "all"  # in place of each witness's label


class RecoverError(LetheError):
    """The log cannot be recovered from the given sources; nothing was written."""

    slug, title, status = "log-not-recovered", "The log cannot be recovered", 409


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What a witness shows as its last checkpoint of this log, or why that is none.

    label: the witness's. note: a checkpoint that a key of the log signed, which may be revoked.
    """

    label: str
    note: str | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Recovered(Generic[T]):
    """The range [`start`, `size`) of the restored entries, and the effect's result.

    compared: the number of witnesses whose checkpoint was compared. left_out: the others.
    """

    start: int
    size: int
    result: T
    compared: int = 0
    left_out: tuple[Witnessed, ...] = ()


def recover(
    ledger: Ledger,
    sources: Sequence[Fetch],
    effect: Callable[[Session, list[Leaf]], T],
    witnessed: Sequence[Witnessed] = (),
    without: Collection[str] = (),
) -> Recovered[T]:
    """Write back the entries that the database lacks, with `effect` in the same transaction.

    `effect` gets the parsed leaves of these entries. Afterwards the log is complete and
    published. without: labels of witnesses that need not show a checkpoint, or EVERY.

    Raises:
        RecoverError: Entries are missing in all sources, or a witness shows no checkpoint.
        LogError: A source does not verify, or belongs to another log.
        ForkedError: Sources, witnesses, database and guard do not share one history.
        LogUnreachableError: A source could not be read.
    """
    read = [read_log(fetch, ledger.keys) for fetch in sources]
    signed = [Checkpoint(report.origin, report.size, report.root) for report, _ in read]
    held = ledger.guard.read()
    if held.origin != ledger.origin:
        raise ForkedError("the guard belongs to a log of another name: set LETHE_ORIGIN back")
    longest = max((leaves for _, leaves in read), key=len, default=[])
    with ledger.repairing() as session:
        start = read_size(session)
        leaves = _join(read_leaves(session, 0, start), longest)
        shown, left_out = _shown(ledger, leaves, witnessed, without)
        target = max([held, *signed, *shown.values()], key=lambda checkpoint: checkpoint.size)
        if len(leaves) < target.size:
            by = [label for label, checkpoint in shown.items() if checkpoint == target]
            signed_by = f"the witness {by[0]} cosigned" if by else "the log was signed with"
            raise RecoverError(
                f"{signed_by} {target.size} entries, and database and sources hold "
                f"{len(leaves)}: {target.size - len(leaves)} are missing. Give another mirror; "
                f"where there is none, {SUCCEED}"
            )
        whole = leaves[: max(start, target.size)]
        root_at, nodes = _tree(whole, start, [held, *signed], shown)
        _require_in_force(ledger, whole, [report.checkpoint for report, _ in read])
        _write(ledger, session, leaves[start : target.size], start, nodes)
        result = effect(session, [parse_leaf(leaf) for leaf in leaves[start : target.size]])
        if held.size < target.size:
            ledger.guard.advance(target, root_at)
        latest = latest_checkpoint(session)
        if latest is None or latest.size < target.size:
            note = ledger.sign(target)
            session.add(LogCheckpoint(size=target.size, root=target.root, note=note))
        session.commit()
    ledger.start()
    return Recovered(start, max(start, target.size), result, len(shown), left_out)


def _join(stored: list[bytes], mirrored: list[bytes]) -> list[bytes]:
    both = min(len(stored), len(mirrored))
    if stored[:both] != mirrored[:both]:
        raise ForkedError(
            "the database holds other entries than the mirror: restore a backup into an empty "
            "database, then recover"
        )
    return stored + mirrored[both:]


def _shown(
    ledger: Ledger,
    leaves: list[bytes],
    witnessed: Sequence[Witnessed],
    without: Collection[str],
) -> tuple[dict[str, Checkpoint], tuple[Witnessed, ...]]:
    """Return the checkpoints that witnesses show, by label, and the witnesses left out.

    leaves: all there are. A key that they say was revoked signs no tree over that entry.
    """
    shown, silent = dict[str, Checkpoint](), list[Witnessed]()
    keys = _spanned(ledger, leaves) if witnessed else ledger.keys
    for one in witnessed:
        try:
            if one.note is None:
                silent.append(one)
            else:
                shown[one.label], _ = keys.open(one.note)
        except (NoteError, CheckpointError) as error:
            silent.append(
                Witnessed(one.label, None, f"its checkpoint does not count: {error.detail}")
            )
    missed = [one for one in silent if one.label not in without and EVERY not in without]
    if missed:
        flags = " ".join(f"--without-witness {one.label}" for one in missed)
        raise RecoverError(
            f"witnesses may have cosigned entries that nothing here shows: {_reasons(missed)}. "
            "Ask their operators for the checkpoints, and find a mirror that has as many "
            f"entries; then, or to go on without knowing, repeat this with {flags}"
        )
    return shown, tuple(silent)


def _reasons(silent: Sequence[Witnessed]) -> str:
    return "; ".join(f"{one.label}: {one.why}" for one in silent)


def _tree(
    leaves: list[bytes], start: int, known: list[Checkpoint], shown: Mapping[str, Checkpoint]
) -> tuple[Callable[[int], bytes], list[tuple[int, int, bytes]]]:
    """Compare the roots at all known checkpoints; return the roots and the new nodes."""
    peaks, nodes = Peaks(), list[tuple[int, int, bytes]]()
    roots = {0: peaks.root()}
    sizes = {checkpoint.size for checkpoint in [*known, *shown.values()]}
    for index, leaf in enumerate(leaves):
        made = list(peaks.append(leaf_hash(leaf)))
        if index >= start:
            nodes += made
        if peaks.size in sizes:
            roots[peaks.size] = peaks.root()
    for checkpoint in known:
        if roots.get(checkpoint.size) != checkpoint.root:
            raise ForkedError(
                f"the first {checkpoint.size} entries are not those that were signed: the "
                "mirror, the database or the guard is another log's"
            )
    for label, checkpoint in shown.items():
        if roots.get(checkpoint.size) != checkpoint.root:
            raise ForkedError(
                f"the witness {label} cosigned other entries than these {checkpoint.size}: the "
                "log's key signed two histories. Keep its checkpoint as proof. If its history "
                "is the true one, give a mirror of it; where there is none, or both were "
                f"acknowledged, {SUCCEED}. If a stolen key signed it, take the witness out of "
                "the policy: docs/witnesses.md"
            )
    return roots.__getitem__, nodes


def _require_in_force(ledger: Ledger, leaves: list[bytes], notes: list[str]) -> None:
    """Refuse a source whose checkpoint is signed only by keys that its entries have revoked."""
    keys = _spanned(ledger, leaves)
    try:
        for note in notes:
            keys.open(note)
    except NoteError as error:
        raise LogError(f"a mirror is not believed: {error}") from None


def _spanned(ledger: Ledger, leaves: list[bytes]) -> LogKeys:
    """Return the log's keys with the trees that they sign, as far as these entries say."""
    said = [(index, parse_leaf(leaf).key) for index, leaf in enumerate(leaves)]
    try:
        return spanned_by([(index, key) for index, key in said if key is not None], ledger.keys)
    except KeyHistoryError as error:
        raise LogError(f"a mirror is not believed: {error}") from None


def _write(
    ledger: Ledger,
    session: Session,
    leaves: list[bytes],
    start: int,
    nodes: list[tuple[int, int, bytes]],
) -> None:
    key = ledger.entry_key
    assert key is not None, "a ledger without it is for looking only"
    day = _day_before(session, start)
    rows: list[EntryRow] = []
    for index, leaf in enumerate(leaves, start):
        # A certificate's leaf has no day: use that of the entry before it.
        rows.append(key.row(index, leaf, day))
        day = date.fromisoformat(rows[-1].day)
    insertions = [
        *(
            storage.insertion_of_entries(session, rows[begin : begin + PAGE])
            for begin in range(0, len(rows), PAGE)
        ),
        *(
            storage.insertion_of_nodes(session, nodes[begin : begin + PAGE])
            for begin in range(0, len(nodes), PAGE)
        ),
    ]
    for insertion in insertions:
        bulk.run(session.connection(), insertion)


def _day_before(session: Session, start: int) -> date:
    entry = session.get(LogEntry, start - 1) if start else None
    return date(1970, 1, 1) if entry is None else date.fromisoformat(entry.day)
