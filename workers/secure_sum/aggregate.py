"""The server's side: the sum of the survivors' inputs from a round's messages.

A pure function of the transcript, so a later recomputation gives the same sum.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from workers.secure_sum.errors import (
    DuplicateMessageError,
    MaskMismatchError,
    TooFewSurvivorsError,
)
from workers.secure_sum.keys import commit_self_seed, mask_key, public_bytes
from workers.secure_sum.messages import (
    Advertisement,
    Confirmation,
    MaskedInput,
    Reveal,
    SharedKeys,
    Statement,
    check_contributions,
    input_digest,
    open_message,
    seen_digest,
    statements_digest,
)
from workers.secure_sum.plan import RoundPlan
from workers.secure_sum.shares import combine
from workers.secure_sum.signing import Roster
from workers.secure_sum.vector import Vector, add_mask, pair_key, pair_sign, self_key


@dataclass(frozen=True, slots=True)
class Transcript:
    """A round's messages by sender, opened and checked against each other.

    advertised ⊇ shared ⊇ masked ⊇ confirmed ⊇ revealed: no member rejoins. All in `masked`
    added the masks of exactly the peers in `shared`; all in `confirmed` were shown `stated`,
    the statements of those in `masked`.
    """

    advertised: dict[str, Advertisement]
    shared: dict[str, SharedKeys]
    masked: dict[str, MaskedInput]
    stated: dict[str, Statement]
    confirmed: dict[str, Confirmation]
    revealed: dict[str, Reveal]

    @property
    def survivors(self) -> list[str]:
        """The members whose input is in the sum."""
        return sorted(self.masked)

    @property
    def dropped(self) -> list[str]:
        """The members whose masks must be recovered, because others added them."""
        return sorted(set(self.shared) - set(self.masked))


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """The sum (plan.length,) modulo 2^64 of the survivors' inputs, and the members."""

    vector: Vector
    survivors: tuple[str, ...]
    dropped: tuple[str, ...]


def read_transcript(plan: RoundPlan, roster: Roster, data: Iterable[bytes]) -> Transcript:
    """Return the transcript of messages in any order.

    Raises:
        DuplicateMessageError: Two different messages of one member for one step.
        MaskMismatchError: A message does not fit the messages that it answers.
        RoundError: As `messages.open_message`.
    """
    found = Transcript({}, {}, {}, {}, {}, {})
    for item in data:
        sender, message = open_message(plan, item, roster)
        match message:
            case Advertisement():
                _put(found.advertised, sender, message)
            case SharedKeys():
                _put(found.shared, sender, message)
            case MaskedInput():
                _put(found.masked, sender, message)
                author, stated = open_message(plan, message.statement, roster)
                if author != sender or not isinstance(stated, Statement):
                    raise MaskMismatchError("an input carries somebody else's statement")
                _put(found.stated, sender, stated)
            case Confirmation():
                _put(found.confirmed, sender, message)
            case Statement():
                raise MaskMismatchError("a statement belongs inside its sender's input")
            case Reveal():
                _put(found.revealed, sender, message)
    _check_fit(found)
    return found


def unmask(plan: RoundPlan, found: Transcript) -> Aggregate:
    """Return the sum of the survivors' inputs, equal to their plain sum bit for bit.

    Raises:
        TooFewSurvivorsError: Fewer than the threshold sent inputs, or revealed shares.
        TooFewContributorsError: The sum would show what single members sent.
        MaskMismatchError: The shares do not make the secrets that were advertised.
    """
    check_contributions(plan, found.stated)
    least = min(len(found.masked), len(found.confirmed), len(found.revealed))
    if least < plan.threshold:
        raise TooFewSurvivorsError(
            f"{least} members remain and {plan.threshold} are needed: open a new round, "
            "perhaps without the members that dropped out"
        )
    total = np.zeros(plan.length, dtype=np.uint64)
    doubted: set[str] = set()  # members that revealed a wrong share
    for member in found.survivors:
        total += found.masked[member].vector
        seed = _self_seed(plan, found, member, doubted)
        add_mask(total, self_key(plan, seed, member), -1)
    for absent in found.dropped:
        secret = mask_key(_mask_seed(plan, found, absent, doubted), plan, absent)
        for member in found.survivors:
            key = pair_key(plan, secret, absent, member, found.advertised[member].mask)
            add_mask(total, key, -pair_sign(member, absent))
    return Aggregate(total, tuple(found.survivors), tuple(found.dropped))


def _self_seed(plan: RoundPlan, found: Transcript, member: str, doubted: set[str]) -> bytes:
    shares = {sender: reveal.self_shares[member] for sender, reveal in found.revealed.items()}
    wanted = found.advertised[member].commitment
    return combine(
        plan, shares, lambda seed: commit_self_seed(seed, plan, member) == wanted, doubted
    )


def _mask_seed(plan: RoundPlan, found: Transcript, absent: str, doubted: set[str]) -> bytes:
    shares = {sender: reveal.mask_shares[absent] for sender, reveal in found.revealed.items()}
    wanted = found.advertised[absent].mask
    return combine(
        plan, shares, lambda seed: public_bytes(mask_key(seed, plan, absent)) == wanted, doubted
    )


T = TypeVar("T")


def _put(messages: dict[str, T], sender: str, message: T) -> None:
    if sender in messages:
        raise DuplicateMessageError("a member sent two messages for one step")
    messages[sender] = message


def _check_fit(found: Transcript) -> None:
    sets = [set(part) for part in (found.advertised, found.shared, found.masked)]
    seen, digest = seen_digest(found.advertised, sets[1]), statements_digest(found.stated)
    fits = (
        sets[0] >= sets[1] >= sets[2] >= set(found.confirmed) >= set(found.revealed)
        and all(_states(message, found.stated[who]) for who, message in found.masked.items())
        and all(stated.seen == seen for stated in found.stated.values())
        and all(message.statements == digest for message in found.confirmed.values())
        and all(set(m.sealed) == sets[0] - {who} for who, m in found.shared.items())
        and all(set(m.peers) == sets[1] for m in found.masked.values())
        and all(
            set(m.self_shares) == sets[2] and set(m.mask_shares) == sets[1] - sets[2]
            for m in found.revealed.values()
        )
    )
    if not fits:
        raise MaskMismatchError(
            "the masks would not cancel: members answered different sets of peers; open a "
            "new round"
        )


def _states(message: MaskedInput, stated: Statement) -> bool:
    """Return whether a statement is about this input."""
    counts = (len(message.adds), len(message.releases))
    return (stated.added, stated.released, stated.input) == (
        *counts,
        input_digest(message.vector),
    )
