"""What a model was registered with, as the log has it: nobody can change it there."""

from dataclasses import dataclass

from sqlmodel import Session, col, select

from app.ledger.entries import parse_leaf
from app.service.registration import digest_of, pinned_of
from models import LogEntry, Model


@dataclass(frozen=True, slots=True)
class Registered:
    """policy: the logged digest of the policy, empty if the model is not as registered.

    noise: the logged commitment to its noise key, likewise; config: the digests of the
    registration that is logged and of the model as it is.
    """

    unchanged: bool
    policy: str
    noise: str
    config: tuple[str, str]


def registered(session: Session, model: Model) -> Registered:
    """Compare a model's row with the last registration before its first version."""
    found: dict[str, str] = {}
    query = select(LogEntry).where(LogEntry.ref == model.ref).order_by(col(LogEntry.index))
    for entry in session.exec(query):
        leaf = parse_leaf(bytes(entry.leaf))  # the columns beside it are not in the log
        if leaf.ref != model.ref or leaf.event == "model.version":
            break
        if leaf.event == "model.registered":
            found = dict(leaf.digests)
    config = found.get("config", ""), digest_of(pinned_of(model))
    unchanged = config[0] == config[1]
    known = found if unchanged else {}
    return Registered(unchanged, known.get("policy", ""), known.get("noise", ""), config)
