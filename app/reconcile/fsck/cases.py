"""fsck of cases: each row has the dates, parts and contact address that the log commits to."""

from collections.abc import Sequence
from contextlib import suppress

from sqlmodel import Session, col, select

from app.reconcile.case_parts import (
    FOLLOWING,
    OPENED,
    REPLACES,
    contact_digest,
    stored_parts,
)
from app.reconcile.findings import FsckReport, valid_leaves
from app.reconcile.retention import ended_refs
from lethe.log.entries import MODEL_EVENT, EntryError, Leaf, parse_leaf
from models import Case, LogEntry
from models.database.session import rows_in

CHECK = "case"
FETCH = 500  # rows in memory at once
UNLIKE = (
    "a case has other dates, parts or another contact address than the log commits to: restore "
    "the table cases from a backup"
)
FAKED = (
    "the key or contact address of a case is gone, and no entry says that its retention ended: "
    "restore its row from a backup, and find out who writes to the database"
)


def check_cases(session: Session, report: FsckReport) -> None:
    """Compare each case with the entries of its parts, until its key is destroyed."""
    ended, expired = ended_refs(session, "case"), ended_refs(session, "contact")
    after, replaced = "", _replaced(session)
    while cases := session.exec(
        select(Case).where(col(Case.ref) > after).order_by(col(Case.ref)).limit(FETCH)
    ).all():
        leaves = _leaves(session, cases)
        for case in cases:
            if case.key is None:
                if case.ref not in ended:
                    report.add(CHECK, FAKED, _index(case))
                continue
            contacts = {
                _digests(leaves, part.log_index).get("contact") for part in stored_parts(case)
            }
            if not _is_logged(case, case.key, leaves) or _is_before(case, case.key, replaced):
                report.add(CHECK, UNLIKE, _index(case))
            elif contacts == {contact_digest(case.key, case.contact)}:
                continue
            elif case.contact is not None:
                report.add(CHECK, UNLIKE, _index(case))
            elif case.closed_at is None and case.ref not in expired:
                report.add(CHECK, FAKED, _index(case))
        after = cases[-1].ref


def _leaves(session: Session, cases: Sequence[Case]) -> dict[int, Leaf]:
    wanted = sorted({part.log_index for case in cases for part in stored_parts(case)})
    query = select(LogEntry.index, LogEntry.leaf)
    return dict(valid_leaves(rows_in(session, query, col(LogEntry.index), wanted)))


def _is_logged(case: Case, key: bytes, leaves: dict[int, Leaf]) -> bool:
    parts = stored_parts(case)
    return bool(parts) and all(
        part.log_index in leaves
        and (leaves[part.log_index].kind, leaves[part.log_index].ref)
        == (MODEL_EVENT, part.model)
        and _digests(leaves, part.log_index).get("part") == part.commitment(case, key)
        for part in parts
    )


def _replaced(session: Session) -> set[str]:
    """Return the digests of all parts that a later entry replaces."""
    query = select(LogEntry.leaf).where(LogEntry.event == OPENED)
    found = set()
    for data in session.exec(query.execution_options(yield_per=FETCH)):
        if REPLACES.encode() in data:
            with suppress(EntryError):  # reported by `check_tree`
                found.add(parse_leaf(data).digests.get(REPLACES, ""))
    return found


def _is_before(case: Case, key: bytes, replaced: set[str]) -> bool:
    """Return whether a case has a part from before it was replaced."""
    return any(
        part.found == FOLLOWING and part.replaced(key) in replaced
        for part in stored_parts(case)
    )


def _digests(leaves: dict[int, Leaf], index: int) -> dict[str, str]:
    leaf = leaves.get(index)
    return dict(leaf.digests) if leaf is not None and leaf.event == OPENED else {}


def _index(case: Case) -> int | None:
    return case.parts[0]["log_index"] if case.parts else None
