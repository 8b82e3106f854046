"""The steps of a masked round: senders, the end of a step, and the failure of a round.

A member that has not sent by the end of a step takes no part in later steps. If fewer members
than the threshold remain, the round fails and changes nothing.

The log's entry `round.opened` commits to the plan, which names the members; each member's key
has a MAC and names its client. So write access to `rounds` and `round_members` cannot add or
omit a member, or make a member act for another client.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlmodel import Session, col, select

from app import logs
from app.ledger.journal import record_model_event
from app.ledger.key_rows import all_written_here
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.reconcile.model_events import ROUND_FAILED
from app.rounds.messages import plan_digest
from app.schemas.rounds import STEPS, Step
from app.service.context import Services
from lethe.log.entries import EntryError, parse_leaf
from models import Job, LogEntry, Model, Record, RequesterKey, Round, RoundMember, Subject
from models.database.session import rows_in

FEW = 3  # with only two contributors, each can subtract its own part from the sum


def is_open(row: Round) -> bool:
    """Return whether members may still send."""
    return row.state in STEPS


def members(session: Session, round_id: str) -> list[RoundMember]:
    """Return a round's members ordered by keyid, as in the plan."""
    query = select(RoundMember).where(RoundMember.round_id == round_id)
    return sorted(session.exec(query), key=lambda member: member.keyid)


def message_id(member: RoundMember, step: Step) -> str | None:
    """Return the artifact of a member's message for a step, None if it has not sent."""
    found: str | None = getattr(member, f"{step}_id")
    return found


def senders(rows: list[RoundMember], step: Step) -> list[RoundMember]:
    """Return the members that sent a message for a step."""
    return [member for member in rows if message_id(member, step) is not None]


def expected(rows: list[RoundMember], step: Step) -> list[RoundMember]:
    """Return the members that may send for a step: those that sent for the previous step."""
    position = STEPS.index(step)
    return rows if position == 0 else senders(rows, STEPS[position - 1])


def requested_releases(session: Session, row: Round, client: str) -> list[str]:
    """Return the records that a client must release in a round, sorted."""
    released = [record for records in row.requests.values() for record in records]
    query = (
        select(Record.record)
        .join(Subject, col(Subject.id) == col(Record.subject_id))
        .where(Record.model_id == row.model_id, Subject.client_tag == client)
    )
    return sorted(rows_in(session, query, col(Record.record), released))


def is_waiting(services: Services, session: Session, row: Round, now: datetime) -> bool:
    """Return whether `advance_round` would leave a round as it is."""
    if not is_open(row):
        return True
    rows = members(session, row.id)
    return _is_step_open(rows, row, now) and is_as_opened(services.ledger, session, row, rows)


def _is_step_open(rows: list[RoundMember], row: Round, now: datetime) -> bool:
    step: Step = row.state  # type: ignore[assignment]
    return len(senders(rows, step)) < len(expected(rows, step)) and now < row.step_until


def advance_round(services: Services, tx: Transaction, row: Round) -> str | None:
    """Advance a round as far as possible; return the id of a job to nudge, if any.

    A round whose rows were changed since its opening fails before a member sees anything.
    """
    while is_open(row):
        rows = members(tx.session, row.id)
        if not is_as_opened(services.ledger, tx.session, row, rows):
            fail(services, tx, row, CHANGED)
            return None
        if _is_step_open(rows, row, tx.now):
            return None
        step: Step = row.state  # type: ignore[assignment]
        sent = senders(rows, step)
        if (reason := _failure(tx.session, row, step, sent)) is not None:
            fail(services, tx, row, reason)
            return None
        if step == "masked":
            _warn(row, sent)
        if step == "reveal":
            row.state = "summing"
            return _queue(tx, row)
        row.state = STEPS[STEPS.index(step) + 1]
        row.step_until = tx.now + timedelta(seconds=row.step_seconds)
        tx.session.flush()
    return None


def _failure(session: Session, row: Round, step: Step, sent: list[RoundMember]) -> str | None:
    """Return why a round cannot continue after a step, None if it can."""
    if len(sent) < row.threshold:
        return (
            f"survivors-too-few: {len(sent)} members remain at step {step} and "
            f"{row.threshold} are needed; open a new round"
        )
    if step != "masked":
        return None
    if not _releases_whole(session, row, sent):
        return (
            "release-incomplete: a member dropped out that holds some of the records of a "
            "request whose others were released; open a new round"
        )
    return too_few(row, sent)


def too_few(row: Round, sent: list[RoundMember]) -> str | None:
    """Return why the members would refuse to unmask this sum, None if they would not."""
    moved = [member.moved for member in sent if member.moved]
    least, rows = row.plan["least_contributors"], row.plan["least_rows"]
    if not moved or (len(moved) >= least and sum(moved) >= rows):
        return None
    return (
        f"contributions-too-few: {len(moved)} members move {sum(moved)} records, and {least} "
        f"and {rows} are the least that hides a single one's; open a round in which more "
        "members add or release something"
    )


def _releases_whole(session: Session, row: Round, sent: list[RoundMember]) -> bool:
    """Return whether for each request either all or none of its clients have sent."""
    remaining = {member.client for member in sent}
    for records in row.requests.values():
        clients = clients_of(session, row.model_id, records)
        if clients & remaining and not clients <= remaining:
            return False
    return True


def clients_of(session: Session, model_id: int, records: Sequence[str]) -> set[str]:
    """Return the clients that hold any of these records of a model."""
    query = (
        select(Subject.client)
        .join(Record, col(Record.subject_id) == col(Subject.id))
        .where(Record.model_id == model_id)
        .distinct()
    )
    found = rows_in(session, query, col(Record.record), records)
    return {name for name in found if name is not None}


def _warn(row: Round, sent: list[RoundMember]) -> None:
    """Add warnings about what the round's sum discloses, given its contributors."""
    contributors = sum(member.moved > 0 for member in sent)
    warnings = list(row.warnings)
    if 0 < contributors < FEW:
        warnings.append(
            f"{contributors} of the members contribute to this sum: with two, each can compute "
            "what the other sent; with one, everybody can"
        )
    if sum(member.moved for member in sent) == 1:
        warnings.append("a single record is moved: the sum is that record's statistics")
    row.warnings = warnings


def _queue(tx: Transaction, row: Round) -> str:
    job = Job(
        id=str(uuid.uuid4()),
        model_id=row.model_id,
        kind="round",
        call_id=logs.call_id(),
        stage="execute",
        created_at=tx.now,
    )
    tx.session.add(job)
    row.job_id = job.id
    tx.session.flush()
    return job.id


def fail_round(services: Services, tx: Transaction, job: Job, reason: str) -> None:
    """End a round and its job without success. The model was not changed."""
    job.stage, job.done_at, job.lease_until = "done", tx.now, None
    row = tx.session.exec(select(Round).where(Round.job_id == job.id)).one()
    fail(services, tx, row, reason)


def close_round(services: Services, tx: Transaction, row: Round, state: str) -> None:
    """End a round, and destroy its members' messages and statements."""
    for member in members(tx.session, row.id):
        for step in STEPS:
            artifact = message_id(member, step)
            if artifact is not None:
                services.artifacts.shred(tx.session, artifact, "round-message")
        member.statement = None
        member.client = ""  # the member's key still names the client
    row.state, row.closed_at = state, tx.now
    row.requests = {request_id: [] for request_id in row.requests}  # drop erased record ids
    tx.session.flush()


def fail(services: Services, tx: Transaction, row: Round, reason: str) -> None:
    """End a round without success, and log the failure."""
    close_round(services, tx, row, "failed")
    row.reason = reason[:300]
    ref = tx.session.get_one(Model, row.model_id).ref
    record_model_event(tx, ref, ROUND_FAILED, {})
    tx.session.flush()


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
            and _are_clients(session, members)
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


def _are_clients(session: Session, members: Sequence[RoundMember]) -> bool:
    keys = all_written_here(session, RequesterKey, [member.keyid for member in members])
    told = {keyid: (key.role, key.client) for keyid, key in keys.items()}
    return told == {member.keyid: ("client", member.client) for member in members}
