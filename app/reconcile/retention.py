"""The log's entries on ends of retention, and the items that they list."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, select

from app.reconcile.findings import valid_leaves
from app.settings import Settings
from lethe import canonical
from lethe.log.entries import RETENTION_EVENT, Leaf
from models import Artifact, ErasureRequest, LogEntry, RetentionRemoval, Verification


def cut_offs(settings: Settings, now: datetime) -> dict[str, datetime]:
    """Return by kind the latest end time of items that are due at `now`."""
    scope = settings.request_retention_days
    days = {
        "undecided": settings.undecided_retention_days,
        # Evidence that outlives its request could not be compared with the log.
        "evidence": min(settings.evidence_retention_days, scope),
        "scope": scope,
        "contact": settings.contact_retention_days,
        "case": scope,
        "key": settings.key_retention_days,
        "hold": scope,
    }
    return {kind: now - timedelta(days=kept) for kind, kept in days.items()}


def has_evidence() -> ColumnElement[bool]:
    """Return whether a request's evidence is still kept; part of a query on requests."""
    kept = (
        select(Verification.request_id)
        .join(Artifact, col(Artifact.id) == col(Verification.evidence_id))
        .where(
            col(Verification.request_id) == col(ErasureRequest.id),
            col(Artifact.wrapped_key).is_not(None),
        )
    )
    return kept.exists()


def items_digest(rows: Iterable[RetentionRemoval]) -> str:
    """Return the digest of kinds and refs by which an entry names the destroyed items."""
    return sha256(canonical.encode(sorted([row.kind, row.ref] for row in rows))).hexdigest()


def stored_entries(session: Session, first: int = 0) -> list[tuple[int, Leaf]]:
    """Return (index, leaf) of the stored entries on ends of retention, from `first` on.

    For fsck, which compares all leaves with the tree, and to check whether there are any.
    """
    query = select(LogEntry.index, LogEntry.leaf).where(
        LogEntry.kind == RETENTION_EVENT, col(LogEntry.index) >= first
    )
    return list(valid_leaves(session.exec(query.order_by(col(LogEntry.index)))))


def ended_refs(session: Session, kind: str) -> set[str]:
    """Return the refs of the destroyed items of one kind, by the table."""
    query = select(RetentionRemoval.ref).where(RetentionRemoval.kind == kind)
    return set(session.exec(query))


def listed(session: Session, index: int) -> Sequence[RetentionRemoval]:
    """Return the items that the table lists for the entry at a log index."""
    return session.exec(
        select(RetentionRemoval).where(RetentionRemoval.log_index == index)
    ).all()
