"""The removal of records from stored blocks: what to forget, and what remains.

Stored rows are picked out. If a block is a client's sum, either the whole block is removed or
its owner has released the statistics of the removed records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from sqlmodel import Session, col, select

from app.service.context import Services
from app.service.releases import is_answer, is_decided
from models import Model, Release
from workers.arrays import Rows
from workers.errors import InfeasibleRemovalError, RefusedError
from workers.families.ridge.stored import MessageBlock, RidgeBlock, RowBlock, ridge_config
from workers.judge.ridge import posterior
from workers.judge.ridge.statistics import UnusableRowsError
from workers.lineage.chain import BatchMember, owned_by_subject
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.statistics.gram import RidgeStatistics
from workers.methods.ridge.statistics.message import Batch, Message, add_messages, check_message
from workers.secure_sum.wire import unpack_message
from workers.updates.update import AnswerError


# The verifier's test of statistics without rows, made before they are learned.
#
# A message that no rows can have may still be close enough to a possible one to pass the tests
# of `workers.methods.ridge.statistics`, which allow for rounding. The verifier evaluates
# exactly and would refute the model that learned it, because of one client's lie. So its own
# criterion is applied before anything is changed.
class IndefiniteError(RefusedError):
    """Statistics with a direction in which rows would need negative weight."""


def check_definite(statistics: RidgeStatistics, config: RidgeConfig) -> None:
    """Check that the verifier takes G, exact and not sketched, for one of rows.

    Raises IndefiniteError if it does not, or cannot tell.
    """
    try:
        posterior.check_definite(statistics.gram, config.exponents, config.penalty)
    except UnusableRowsError:
        raise IndefiniteError(
            "no rows have these statistics: their Gram matrix is not positive semidefinite; "
            "summarise the rows again"
        ) from None


@dataclass(frozen=True, slots=True)
class Released:
    """A client's answer for one request and one of its blocks.

    message: the statistics of `records`, the request's; None if an operator decided to remove
    the whole block.
    """

    id: str
    request_id: str
    subject_id: int
    message: Message | None
    records: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Removal:
    """batch: what the method forgets. rest: what remains of each block, None if nothing.

    dropped: ids of records removed with a block although no request names them.
    """

    batch: Batch
    rest: dict[int, RidgeBlock | None]
    dropped: set[str] = field(default_factory=set)


def remove(
    blocks: Mapping[int, RidgeBlock],
    members: Sequence[BatchMember],
    released: Sequence[Released],
    config: RidgeConfig,
) -> Removal:
    """Take the members' records out of a model's blocks, which are all of one kind.

    Raises AnswerError if a client released statistics that do not fit its block.
    """
    rows = {key: block for key, block in blocks.items() if isinstance(block, RowBlock)}
    if len(rows) == len(blocks):
        return remove_rows(rows, members)
    sums = {key: block for key, block in blocks.items() if isinstance(block, MessageBlock)}
    return remove_messages(sums, members, released, config)


def remove_rows(blocks: Mapping[int, RowBlock], members: Sequence[BatchMember]) -> Removal:
    """Take the members' rows out of the blocks."""
    owned = owned_by_subject(members)
    parts = [blocks[subject].only(ids) for subject, ids in owned.items()]
    rows = Rows(
        np.concatenate([part.rows.codes for part in parts]),
        np.concatenate([part.rows.labels for part in parts]),
    )
    return Removal(
        rows, {subject: blocks[subject].without(ids) for subject, ids in owned.items()}
    )


def remove_messages(
    blocks: Mapping[int, MessageBlock],
    members: Sequence[BatchMember],
    released: Sequence[Released],
    config: RidgeConfig,
) -> Removal:
    """Remove whole blocks, and from others what their clients released.

    Raises AnswerError if a client released statistics that do not fit its block.
    """
    bits = config.bits
    answers = {(one.request_id, one.subject_id): one for one in released}
    decided = {one.subject_id for one in released if one.message is None}
    forgotten: list[Message] = []
    rest: dict[int, RidgeBlock | None] = {}
    dropped: set[str] = set()
    for subject, ids in owned_by_subject(members).items():
        block = blocks[subject]
        if subject in decided or ids == set(block.records):
            forgotten.append(block.message)
            rest[subject] = None
            dropped |= set(block.records) - ids
            continue
        left: MessageBlock | None = block
        for member in members:
            own = member.owned().get(subject)
            if own is None:
                continue
            assert left is not None, "a block that goes as a whole was handled above"
            answer = answers[member.request_id, subject]
            left = _without(left, own, answer, config)
            assert answer.message is not None
            forgotten.append(answer.message)
        rest[subject] = left
    return Removal(add_messages(forgotten, bits=bits), rest, dropped)


def _without(
    block: MessageBlock, own: set[str], answer: Released, config: RidgeConfig
) -> MessageBlock | None:
    if answer.message is None or answer.records != own:
        raise AnswerError(answer.id)
    try:
        rest = block.without(own, answer.message, bits=config.bits)
        for message in (answer.message, None if rest is None else rest.message):
            if message is not None and message.residual == 0:
                check_definite(message.statistics, config)
    except (InfeasibleRemovalError, IndefiniteError):
        raise AnswerError(answer.id) from None
    return rest


def answers(
    services: Services, session: Session, model: Model, members: Sequence[BatchMember]
) -> list[Released]:
    """Return what clients answered, and operators decided, for these requests to a model.

    Raises AnswerError if no rows can have an answer's statistics, it is not the answer to its
    release, or the log has no decision of an operator.
    """
    bits = ridge_config(model).bits
    query = select(Release).where(
        col(Release.request_id).in_([member.request_id for member in members]),
        col(Release.state).in_(["answered", "dropped"]),
    )
    found = []
    for release in session.exec(query):
        ids = release.id, release.request_id, release.subject_id
        if release.upload_id is None:
            if not is_decided(services.ledger, session, release):
                raise AnswerError(release.id)
            found.append(Released(*ids, message=None))
            continue
        data = services.artifacts.get(session, release.upload_id)
        if not is_answer(services.root_secret, model, release, data):
            raise AnswerError(release.id)
        try:
            envelope = unpack_message(data, bits=bits)
            check_message(envelope.message, bits=bits)
        except RefusedError:
            raise AnswerError(release.id) from None
        found.append(
            Released(*ids, message=envelope.message, records=frozenset(envelope.records))
        )
    return found
