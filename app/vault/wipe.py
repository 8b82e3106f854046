"""Destroys the keys, rows and identities of a deleted model.

The tables are found by their columns and foreign keys, so that new tables are included: every
row of the model is deleted unless its table is in KEPT, and every file that one of its rows
names is shredded unless it is the evidence of a certificate.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, ColumnElement, Table, delete, update
from sqlalchemy import select as columns
from sqlmodel import Session, col, select

from lethe.log.entries import parse_leaf
from models import (
    Artifact,
    Audit,
    AuditPair,
    Contribution,
    Job,
    LogEntry,
    Model,
    ModelVersion,
    RoundMember,
)
from models.database.session import chunks, rows_in
from models.database.types import METADATA, clock

DELETED = "deleted"  # the state of a deleted model
HELD_OUT, HELD_OUT_KIND = "model.held-out", "held-out"  # as in app.reconcile.inputs
# The record that the model existed and what was done with it. Requests keep their certificates
# and evidence until their retention ends; audits keep their reports.
KEPT = frozenset(
    {"audits", "contributions", "erasure_requests", "jobs", "model_versions", "models"}
)
_MEMBERS: Table = RoundMember.__table__  # type: ignore[attr-defined]


def wipe(session: Session, model: Model) -> None:
    """Destroy a model's keys, rows and identities in the caller's transaction.

    Idempotent. Call `ArtifactStore.unlink_shredded` and `app.vault.scrub` after the commit.
    """
    now, connection = clock(session), session.connection()
    session.flush()
    artifacts = sorted(_artifacts(session, model))
    connection.execute(delete(_MEMBERS).where(_of_rounds(model)))
    for table in _emptied():
        connection.execute(delete(table).where(table.c.model_id == model.id))
    for chunk in chunks(artifacts):
        live = col(Artifact.id).in_(chunk) & col(Artifact.wrapped_key).is_not(None)
        shredded = update(Artifact).where(live).values(wrapped_key=None, shredded_at=now)
        connection.execute(shredded)
    public = col(ModelVersion.withdrawn_at).is_(None) & (ModelVersion.model_id == model.id)
    connection.execute(update(ModelVersion).where(public).values(withdrawn_at=now))
    sent = update(Contribution).where(col(Contribution.model_id) == model.id)
    connection.execute(sent.values(body_digest="", idempotency_key=None))
    # Only in a restored database: a model in use cannot be deleted.
    unlearned = sent.where(col(Contribution.state) == "received")
    connection.execute(unlearned.values(state="failed", failure="the model was deleted"))
    audits = select(Audit.id).where(col(Audit.model_id) == model.id)
    # Log-odds of single records, which erasures destroy too (workers.method_audits).
    numbers = update(AuditPair).where(col(AuditPair.audit_id).in_(audits))
    connection.execute(numbers.values(before=None, after=None, retrained=None, mac=None))
    waiting = update(Job).where(col(Job.model_id) == model.id, col(Job.done_at).is_(None))
    connection.execute(waiting.values(stage="done", done_at=now, lease_until=None))
    model.state, model.failure, model.tombstone_key = DELETED, None, b""
    session.add(model)
    session.flush()
    session.expire_all()


def is_wiped(session: Session, model: Model) -> bool:
    """Return whether everything that `wipe` destroys is gone."""
    if (model.state, bytes(model.tombstone_key)) != (DELETED, b""):
        return False
    connection = session.connection()
    for table in _emptied():
        one = columns(table.c.model_id).where(table.c.model_id == model.id).limit(1)
        if connection.execute(one).first() is not None:
            return False
    live = select(Artifact.id).where(col(Artifact.wrapped_key).is_not(None))
    left = rows_in(session, live, col(Artifact.id), sorted(_artifacts(session, model)))
    return next(left, None) is None


def shared(session: Session, model: Model) -> bool:
    """Return whether a row that is not the model's names one of its files.

    The service writes no such row. An attacker could, to have another's file destroyed.
    """
    own = _artifacts(session, model)
    for column in _naming():
        table = column.table
        if "model_id" in table.c:
            others = columns(column).where(table.c.model_id != model.id)
        elif table is _MEMBERS:
            others = columns(column).where(~_of_rounds(model))
        else:
            others = columns(column)
        if own.intersection(session.connection().scalars(others)):
            return True
    return False


def _artifacts(session: Session, model: Model) -> set[str]:
    """Return the files named by a model's rows, except evidence, and its held-out rows."""
    found = set(_held_out(session, model))
    for column in _naming():
        table, query = column.table, columns(column)
        if "model_id" in table.c:
            query = query.where(table.c.model_id == model.id)
        elif table is _MEMBERS:
            query = query.where(_of_rounds(model))
        else:
            continue
        found.update(one for one in session.connection().scalars(query) if one is not None)
    return found


def _held_out(session: Session, model: Model) -> Iterator[str]:
    """Return the files of a model's held-out rows, which only the log names."""
    logged = select(LogEntry.leaf).where(LogEntry.ref == model.ref, LogEntry.event == HELD_OUT)
    digests = {parse_leaf(data).digests.get("rows") for data in session.exec(logged)}
    of_kind = select(Artifact.id).where(Artifact.kind == HELD_OUT_KIND)
    named = sorted(one for one in digests if one is not None)
    return rows_in(session, of_kind, col(Artifact.digest), named)


def _naming() -> Iterator["Column[Any]"]:
    """Yield the columns that refer to artifacts."""
    for table in METADATA.sorted_tables:
        for key in table.foreign_keys:
            if key.column.table.name == "artifacts":
                yield key.parent


def _emptied() -> Iterator[Table]:
    """Yield the tables whose rows of the model are deleted, referring tables first."""
    for table in reversed(METADATA.sorted_tables):
        if "model_id" in table.c and table.name not in KEPT:
            yield table


def _of_rounds(model: Model) -> ColumnElement[bool]:
    rounds = METADATA.tables["rounds"].c
    found: ColumnElement[bool] = _MEMBERS.c.round_id.in_(
        columns(rounds.id).where(rounds.model_id == model.id)
    )
    return found
