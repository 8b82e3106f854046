"""A version as the log has it: whoever can change a table here cannot change that."""

from sqlmodel import Session

from app.ledger.entries import parse_leaf
from models import LogEntry, Model, ModelVersion
from workers.errors import RefusedError


def check_logged(session: Session, model: Model, *versions: ModelVersion) -> None:
    """Check that head, rows and retained set of versions are those that were published.

    Raises RefusedError where a table says otherwise than the entry that it points at.
    """
    for version in versions:
        entry = session.get(LogEntry, version.log_index)
        if entry is None:
            raise RefusedError("a version has no entry in the log")
        leaf = parse_leaf(bytes(entry.leaf))  # the columns beside it are not in the log
        said = {
            "head": version.head_digest,
            "statistics": version.statistics_digest,
            "retained": bytes(version.retained_root).hex(),
        }
        logged = {name: leaf.digests.get(name) for name in said}
        if (leaf.event, leaf.ref, logged) != ("model.version", model.ref, said):
            raise RefusedError("the tables say otherwise of a version than the log")
