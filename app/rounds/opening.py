"""Compares a masked round with its opening in the log: its rows have no MAC, its entry has.

The log's entry `round.opened` commits to the plan, which names the members; each member's key
has a MAC and names its client. So write access to `rounds` and `round_members` cannot add or
omit a member, or make a member act for another client.
"""

from collections.abc import Sequence

from sqlmodel import Session

from app.ledger.key_rows import believed
from app.ledger.sequencer import Ledger
from app.rounds.messages import plan_digest
from lethe.log.entries import EntryError, parse_leaf
from models import LogEntry, Model, RequesterKey, Round, RoundMember

OPENED = "round.opened"
CHANGED = (
    "members-changed: the round's plan or members are not those that it was opened with; rows "
    "of the database were changed: find out by whom, and open a new round"
)


def is_as_opened(
    ledger: Ledger, session: Session, row: Round, members: Sequence[RoundMember]
) -> bool:
    """Return whether a round has the logged plan, and exactly its members.

    members: the round's, ordered by keyid. Only for open rounds: when a round ends, its members
    lose their client.
    """
    try:
        return (
            _is_logged(ledger, session, row)
            and row.threshold == row.plan["threshold"]
            and [member.keyid for member in members] == row.plan["members"]
            and all(_is_client(session, member) for member in members)
        )
    except (EntryError, LookupError, TypeError, ValueError):  # the JSON is not a plan
        return False


def _is_logged(ledger: Ledger, session: Session, row: Round) -> bool:
    entry, key = session.get(LogEntry, row.log_index), ledger.entry_key
    if entry is None or key is None or not key.is_authentic(entry):
        return False
    leaf = parse_leaf(bytes(entry.leaf))
    ref = session.get_one(Model, row.model_id).ref
    return (leaf.event, leaf.ref, leaf.digests.get("plan"), row.plan["round"]) == (
        OPENED,
        ref,
        plan_digest(row.plan),
        row.id,
    )


def _is_client(session: Session, member: RoundMember) -> bool:
    key = believed(session, RequesterKey, member.keyid)
    return key is not None and (key.role, key.client) == ("client", member.client)
