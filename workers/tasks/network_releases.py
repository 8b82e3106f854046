"""How many versions a network's log has since its last training: what noise has to hide.

The entry of a version that was trained from its initial weights names them, `start`. Each
version after it is a release of what some method made of it, whoever judged it and however.
"""

from sqlmodel import Session, col, select

from app.ledger.entries import parse_leaf
from models import LogEntry, Model, ModelVersion
from workers.errors import RefusedError

START = "start"  # digest in the entry `model.version`


def ordinal(session: Session, model: Model, before: ModelVersion | None = None) -> int:
    """Return how many versions the log has of a model, up to `before` and without it."""
    query = select(LogEntry).where(LogEntry.ref == model.ref)
    if before is not None:
        query = query.where(col(LogEntry.index) < before.log_index)
    leaves = (parse_leaf(bytes(entry.leaf)) for entry in session.exec(query))
    return sum(leaf.ref == model.ref and leaf.event == "model.version" for leaf in leaves)


def made(session: Session, model: Model, before: ModelVersion | None = None) -> int:
    """Return how many releases there were since the last training, up to `before`.

    Raises RefusedError if `before` itself is logged as a training: it would begin a budget.
    """
    query = (
        select(LogEntry).where(LogEntry.ref == model.ref).order_by(col(LogEntry.index).desc())
    )
    if before is not None:
        query = query.where(col(LogEntry.index) <= before.log_index)
    count = 0
    for entry in session.exec(query):
        leaf = parse_leaf(bytes(entry.leaf))  # the columns beside it are not in the log
        if leaf.ref != model.ref or leaf.event != "model.version":
            continue
        training = START in leaf.digests
        if before is not None and entry.index == before.log_index:
            if training:
                raise RefusedError("a version that is no training was logged as one")
        elif training:
            break
        else:
            count += 1
    return count
