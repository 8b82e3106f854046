"""The sum of a masked round: unmask its messages and add them to the model's statistics."""

import secrets
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from sqlmodel import Session, col, select

from app.ledger.key_rows import written_here
from app.ledger.sequencer import Ledger
from app.reconcile.model_events import masked_inputs
from app.rounds.steps import CHANGED, is_as_opened, members, message_id
from app.schemas.rounds import STEPS
from app.service.desk.people import RecordIdentity
from app.vault.master import open_tombstone_key
from lethe import canonical
from lethe.certificates.evidence import SALT_SIZE
from lethe.identity import WIDTH, unpack
from models import ErasureRequest, Job, ModelVersion, Record, RequesterKey, Round
from models.database.session import rows_in
from models.person import LEARNED
from workers.errors import RefusedError
from workers.families.masked.transcript import SealedTranscript
from workers.families.ridge.stored import digest_of, load_state, ridge_config
from workers.leases.lease import JobContext
from workers.lineage import versions
from workers.lineage.chain import BatchMember
from workers.lineage.logged import require_rows
from workers.methods.ridge.base import RidgeConfig, RidgeState
from workers.methods.ridge.statistics.gram import RidgeStatistics
from workers.methods.ridge.statistics.message import Message, check_message
from workers.secure_sum.aggregate import read_transcript, unmask
from workers.secure_sum.errors import RoundError
from workers.secure_sum.messages import MaskedInput
from workers.secure_sum.plan import parse_plan
from workers.secure_sum.signing import parse_roster
from workers.secure_sum.vector import Sums, from_vector

Owner = tuple[str, str]  # client, subject
UNLOGGED = (
    "input-unlogged: the log does not have an input as received in this round: it came before "
    "an upgrade, or rows of the database were changed; open a new round"
)


@dataclass(frozen=True, slots=True, eq=False)
class RoundSum:
    """The result of a round: the sums, their owners, and the ids that came with them."""

    sums: Sums
    survivors: tuple[str, ...]
    dropped: tuple[str, ...]
    adds: dict[str, Owner]
    releases: set[str]
    contributors: int
    people: list[RecordIdentity]  # identities of the added records


@dataclass(frozen=True, slots=True, eq=False)
class RoundCase:
    """A round and the model it is added to, read before anything is computed."""

    row: Round
    transcript: SealedTranscript
    inputs: frozenset[str]  # the digests of its masked messages
    clients: dict[str, str]
    config: RidgeConfig
    method: str
    before: ModelVersion | None
    state: RidgeState | None
    counts: list[int]
    released: list[BatchMember]
    tombstone_key: bytes


def load_case(job: JobContext, session: Session) -> RoundCase:
    """Return the round of a leased job and the model it is added to.

    Raises RefusedError if a member's key is not as registered, the members are not those that
    the round was opened with, or the sums are not those of the version before.
    """
    services, lease, model = job.services, job.lease, job.model
    row = session.exec(select(Round).where(Round.job_id == lease.job_id)).one()
    before = versions.current(session, model)
    state = load_state(services, session, before) if before else None
    if state is not None:  # a tampered row may name another model's
        require_rows(before, digest_of(state, ridge_config(model)))
    sent = members(session, row.id)
    messages, inputs = list[bytes](), set[str]()
    for member in sent:
        for step in STEPS:
            if (artifact := message_id(member, step)) is not None:
                messages.append(services.artifacts.get(session, artifact))
                if step == "masked":
                    inputs.add(sha256(messages[-1]).hexdigest())
    roster = {member.keyid: public_key_of(session, member.keyid) for member in sent}
    opened = is_as_opened(services.ledger, session, row, sent)
    # For the model that the sum is added to, by the row that was compared with the log.
    if not opened or (row.model_id, row.plan["model"]) != (lease.model_id, model.ref):
        raise RefusedError(CHANGED)
    require_arrived(services.ledger, model.ref, inputs)
    statistics = None if state is None else state.statistics
    counted = counted_round(session, lease.model_id)
    return RoundCase(
        row=row,
        transcript=SealedTranscript(row.plan, roster, messages, statistics),
        inputs=frozenset(inputs),
        clients={member.keyid: member.client for member in sent},
        config=ridge_config(model),
        method=model.method,
        before=before,
        state=state,
        counts=(
            decode_counts(services.artifacts.get(session, counted.counts_id or ""))
            if counted
            else [0] * len(model.classes)
        ),
        released=[_released(session, row, request_id) for request_id in row.requests],
        tombstone_key=open_tombstone_key(services.root_secret, model),
    )


def encode_counts(counts: Sequence[int]) -> bytes:
    """Return label counts as canonical JSON, with a salt at the end.

    A certificate has the digest of this file among `purged`. Without a salt whoever reads it
    could try all counts, and two certificates would tell the label of an erased record.
    """
    return canonical.encode([*counts, secrets.token_hex(SALT_SIZE)])


def decode_counts(data: bytes) -> list[int]:
    """Decode the bytes of `encode_counts`."""
    *counts, _salt = canonical.decode(data)
    return [int(count) for count in counts]


def require_arrived(ledger: Ledger, ref: str, inputs: Set[str]) -> None:
    """Check that a round's masked inputs are those of the log, since the last round ended.

    Others may have been hidden while people were looked up. Raises RefusedError.
    """
    if not inputs <= masked_inputs(ledger, ref):
        raise RefusedError(UNLOGGED)


def public_key_of(session: Session, keyid: str) -> str:
    """Return a member's key. A revoked key remains valid for what it signed before."""
    if (key := written_here(session, RequesterKey, keyid)) is None:
        raise RefusedError(
            "the key of a member is not as it was registered: run `lethe log fsck`"
        )
    return key.public_key


def counted_round(session: Session, model_id: int) -> Round | None:
    """Return the round that holds the model's label counts: the last one that was summed."""
    query = select(Round).where(Round.model_id == model_id, col(Round.counts_id).is_not(None))
    return session.exec(query).one_or_none()


def _released(session: Session, row: Round, request_id: str) -> BatchMember:
    job = session.exec(select(Job).where(Job.request_id == request_id)).one()
    request = session.get_one(ErasureRequest, request_id)
    query = select(Record).where(Record.model_id == row.model_id)
    claimed = rows_in(session, query, col(Record.record), row.requests[request_id])
    records = ((one.record, bytes(one.salt), one.subject_id) for one in claimed)
    return BatchMember.of(job, request, records)


def unmask_case(case: RoundCase) -> RoundSum:
    """Return the round's result.

    Raises RefusedError if the masks do not cancel, or the ids do not fit the sum.
    """
    try:
        plan = parse_plan(case.row.plan)
        roster = parse_roster(case.transcript.roster)
        transcript = read_transcript(plan, roster, case.transcript.messages)
        total = unmask(plan, transcript)
    except RoundError as error:
        raise RefusedError(f"{error.slug}: {error}") from error
    adds: dict[str, Owner] = {}
    releases: set[str] = set()
    people: list[RecordIdentity] = []
    moved = 0
    for member, message in transcript.masked.items():
        client = case.clients[member]
        adds |= {record: (client, subject) for record, subject in message.adds}
        releases |= set(message.releases)
        people += _identities(message)
        moved += len(message.adds) + len(message.releases)
    if len(adds) + len(releases) != moved or not releases.isdisjoint(adds):
        raise RefusedError(
            "record-moved-twice: a record is added or released by two members: "
            "each record must be one member's alone, use new ids"
        )
    sums = from_vector(total.vector, plan.dimension, plan.classes)
    if sums.rows != len(adds) - len(releases):
        raise RefusedError(
            "sum-mismatch: the sum covers another number of rows than the ids that came with "
            "it; a member sent statistics of other rows"
        )
    contributors = sum(stated.moved > 0 for stated in transcript.stated.values())
    return RoundSum(sums, total.survivors, total.dropped, adds, releases, contributors, people)


def _identities(message: MaskedInput) -> Iterator[RecordIdentity]:
    for kind, data in message.people.items():
        for place, (record, _) in enumerate(message.adds):
            if found := unpack(data[WIDTH * place : WIDTH * (place + 1)]):
                yield RecordIdentity(record, LEARNED, kind, found)


def apply_sum(case: RoundCase, found: RoundSum) -> Message:
    """Return the model's statistics after the round.

    Raises RefusedError if no rows can have them.
    """
    whole = _whole(case, found)
    try:
        check_message(whole, bits=case.config.bits)
    except RefusedError as error:
        raise RefusedError(
            f"sum-implausible: {error}; a member sent what its rows cannot give, and the masks "
            "hide which one: open a new round"
        ) from error
    return whole


def _whole(case: RoundCase, found: RoundSum) -> Message:
    sums, counts = found.sums, np.array(case.counts, dtype=np.int64) + found.sums.counts
    if case.state is None:
        return Message(RidgeStatistics(sums.gram, sums.moment, sums.rows), counts)
    before = case.state.statistics
    # A sum that wraps around is outside the range that `check_message` accepts.
    statistics = RidgeStatistics(
        before.gram + sums.gram, before.moment + sums.moment, before.rows + sums.rows
    )
    return Message(statistics, counts)
