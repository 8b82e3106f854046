"""Which erasure requests are executed together, and what each of them removes.

They are taken in the order of the queue, each from the set that those before it left. So the
certificate of each is as strong as if it had been alone, and their sets form a chain from
the version before to the version after.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlmodel import select

from app.certificates import shape
from app.certificates.retained import Removal, prove_removal, record_commitment
from app.ledger.journal import record_request_event
from app.ledger.sequencer import Transaction
from app.schemas.requests import Scope
from app.service.context import Services
from app.service.queue import waiting_run
from app.service.scope import claim_again
from models import ErasureRequest, Job, Model, Record
from workers.errors import RefusedError
from workers.tasks.asking import ask, park
from workers.tasks.lease import Lease, LeaseLostError

# Each draft names the commitments that the others removed: this bounds what they take.
MOST_RECORDS = 4096


@dataclass(frozen=True, slots=True)
class Member:
    """One request of an update. `token` fences its job; `salts` are of its records."""

    job_id: str
    token: int
    request_id: str
    salts: dict[str, bytes]
    subjects: dict[str, int]

    def owned(self) -> dict[int, set[str]]:
        """Return the member's records by the id of their subject."""
        owned: dict[int, set[str]] = {}
        for record, subject in self.subjects.items():
            owned.setdefault(subject, set()).add(record)
        return owned


@dataclass(frozen=True, slots=True)
class Link:
    """What one member removed: its proof, the root after it, and what the others removed."""

    removal: dict[str, Any]
    root: bytes
    earlier: list[bytes]
    later: list[bytes]


def collect(services: Services, lease: Lease) -> list[Member]:
    """Take the requests that are executed under this lease; the leased one comes first.

    Without a minimum to wait for each goes alone, and can be withdrawn until its turn. The
    last attempts go alone too: an error that others cause must not fail this one. A request
    whose records the earlier ones of the update erase is left out, to be refused at its turn.
    One that needs what only a client knows is parked; if that is the leased one, none is
    returned.

    Raises:
        RefusedError: An earlier request erased all that the leased one asks for.
        LeaseLostError: Another worker holds the job now.
    """
    settings = services.settings
    alone = settings.batch_min_requests <= 1 or lease.attempt >= settings.max_attempts
    # Entries are made only of the others, which begin here; the leased one has begun.
    members = services.ledger.transact(lambda tx: _take(tx, lease, alone), checkpoint=not alone)
    if members is None:
        return []
    if not members or members[0].job_id != lease.job_id:
        raise RefusedError("an earlier request erased all that this one asks for")
    return members


def _take(tx: Transaction, lease: Lease, alone: bool) -> list[Member] | None:
    session = tx.session
    model = session.get_one(Model, lease.model_id)
    head = session.exec(select(Job).where(Job.id == lease.job_id)).one()
    if head.lease_token != lease.token or head.stage != lease.stage:
        raise LeaseLostError(lease.job_id)
    members: list[Member] = []
    total = 0
    for job in [head] if alone else waiting_run(session, head):
        request = session.get_one(ErasureRequest, job.request_id)
        scope = Scope.model_validate(request.scope)
        earlier = [member.request_id for member in members]
        claim_again(session, lease.model_id, scope, request.id, earlier)
        claimed = session.exec(select(Record).where(Record.claimed_by == request.id)).all()
        if job.id == head.id and not claimed:
            break
        total += len(claimed)
        if members and total > MOST_RECORDS:
            break
        if job.id != head.id:
            _begin(tx, job, request)
        if not claimed:
            continue
        member = Member(
            job.id,
            job.lease_token,
            request.id,
            {record.record: bytes(record.salt) for record in claimed},
            {record.record: record.subject_id for record in claimed},
        )
        if ask(tx, model, request, member.owned()):
            park(tx, job, request, "the statistics of the records, from their clients")
            if job.id == head.id:
                return None
            continue
        members.append(member)
    return members


def _begin(tx: Transaction, job: Job, request: ErasureRequest) -> None:
    """From here on it cannot be withdrawn, and only this worker may commit its execution."""
    job.lease_token += 1
    if request.state == "received":
        request.state = "executing"
        record_request_event(tx, request, "request.executing", {})
    tx.session.flush()


def prove(
    retained: list[bytes], members: list[Member], dropped: Sequence[bytes] = ()
) -> list[Link]:
    """Return each member's link of the chain that starts at the sorted set `retained`.

    `dropped` are the commitments of records that nobody asked for and that go last.
    """
    removals = []
    for member in members:
        removals.append(prove_removal(retained, member.salts))
        own = {record_commitment(salt, record) for record, salt in member.salts.items()}
        retained = [value for value in retained if value not in own]
    read = [shape.read(Removal, removal) for removal in removals]
    gone = [[record.commitment for record in removal.records] for removal in read]
    return [
        Link(
            removals[position],
            read[position].after.root,
            [value for own in gone[:position] for value in own],
            [*(value for own in gone[position + 1 :] for value in own), *dropped],
        )
        for position in range(len(members))
    ]
