"""Rows that are stored and that no version has learned yet: a lookup does not find them.

A case is refused meanwhile. Otherwise it would answer "nothing found", and the model would
learn the person's rows afterwards.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sqlmodel import Session, col, select

from app.problems import ContributionPendingError
from app.reconcile.model_events import masked_inputs
from app.service.context import Services
from app.vault.errors import NotStoredError, ShreddedError
from lethe import canonical
from lethe.identity import ALGORITHMS, WIDTH, Identity, unpack
from lethe.log.entries import parse_leaf
from models import Artifact, Contribution, Job, LogEntry, Model, Round, RoundMember

MESSAGE = "round-message"  # the kind of artifact in which `app.rounds` stores a message
_ENDED = ("done", "failed")


@dataclass(frozen=True, slots=True)
class Unsummed:
    """The masked messages that were read for a person. about: models that may learn their rows.

    Messages are large, so they are read before the log's lock is taken, and under it only their
    ids and digests (hex SHA-256) are compared.
    """

    read: frozenset[str]
    digests: frozenset[str]
    about: frozenset[str]


def read_rounds(services: Services, models: Sequence[Model], person: Identity) -> Unsummed:
    """Read the identities in the messages of masked rounds that are neither summed nor failed.

    Identities travel in the clear, so no row is unmasked. A message counts if a round in
    progress has it, or if it is not shredded, since the end of a round shreds it. Those that
    the tables hide are missed by `require_learned`, which reads the log.
    """
    about: set[str] = set()
    digests: set[str] = set()
    with services.reading() as session:
        kept = select(Artifact.id).where(
            Artifact.kind == MESSAGE, col(Artifact.shredded_at).is_(None)
        )
        stored = dict.fromkeys(session.exec(kept)) | _unsummed(session)
        plans = {one.ref: _last_plan(session, one) for one in models if stored}
        for artifact, model_id in stored.items():
            try:
                data = services.artifacts.get(session, artifact)
            except (NotStoredError, ShreddedError):  # whose rows it has is not known any more
                about |= {model.ref for model in models if model.id == model_id}
                continue
            digests.add(sha256(data).hexdigest())
            message = canonical.decode(data)
            if message["step"] == "masked" and _names(message["body"], person):
                about |= {
                    model.ref
                    for model in models
                    if model.id == model_id or message["plan"] == plans[model.ref]
                }
    return Unsummed(frozenset(stored), frozenset(digests), frozenset(about))


def require_learned(
    services: Services, session: Session, model: Model, rounds: Unsummed
) -> None:
    """Raise ContributionPendingError if rows are stored that may be the person's.

    In the case's transaction: under the log's lock no round ends, and no message arrives. A
    message that the log has as received, and that was not read, may be anybody's.
    """
    received = select(Contribution.id).where(
        Contribution.model_id == model.id, Contribution.state == "received"
    )
    # Whoever writes one of the two tables hides nothing; of who writes both, the worker learns
    # no rows that were received before a case was opened.
    queued = select(Job.id).where(
        Job.model_id == model.id,
        col(Job.contribution_id).is_not(None),
        col(Job.done_at).is_(None),
    )
    if any(session.exec(one.limit(1)).first() is not None for one in (received, queued)):
        raise ContributionPendingError(
            f"rows contributed to the model {model.ref} are still being learned: "
            "try again in a minute, or name the other models"
        )
    unsummed = _unsummed(session)
    new = {one for one in unsummed.keys() - rounds.read if unsummed[one] == model.id}
    unread = masked_inputs(services.ledger, model.ref) - rounds.digests
    if model.ref in rounds.about or new or unread:
        raise ContributionPendingError(
            f"a masked round of the model {model.ref} has received rows that may be the "
            "person's: try again once it has ended, or name the other models"
        )


def _unsummed(session: Session) -> dict[str, int | None]:
    """Return the artifacts of masked messages of rounds in progress, with the model's id."""
    query = (
        select(RoundMember.masked_id, Round.model_id)
        .join(Round, col(Round.id) == col(RoundMember.round_id))
        .where(col(Round.state).not_in(_ENDED))
    )
    return {found: model_id for found, model_id in session.exec(query) if found is not None}


def _last_plan(session: Session, model: Model) -> str | None:
    """Return the digest of the plan of a model's last round, None if it never had one."""
    query = (
        select(LogEntry.leaf)
        .where(LogEntry.ref == model.ref, LogEntry.event == "round.opened")
        .order_by(col(LogEntry.index).desc())
    )
    leaf = session.exec(query.limit(1)).first()
    return None if leaf is None else parse_leaf(bytes(leaf)).digests.get("plan")


def _names(body: Mapping[str, Any], person: Identity) -> bool:
    """Return whether an added record has this identity, as `people.looked_up` compares them."""
    sent = b64decode(body["people"].get(person.kind, ""))
    packed = (sent[start : start + WIDTH] for start in range(0, len(sent), WIDTH))
    return any(_is_same(unpack(one), person.digests) for one in packed)


def _is_same(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> bool:
    both = [name for name in ALGORITHMS if name in one and name in other]
    return bool(both) and one[both[0]] == other[both[0]]
