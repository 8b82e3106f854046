"""The five messages of a round, each signed and canonical.

    {"body":{…},"from":keyid,"plan":hex,"signature":base64,"step":name}

The signature covers the canonical form of the other four members, so a message belongs to one
plan, one step and one sender. Numbers of the vector are little-endian uint64 in base64. A
masked input contains a sixth message, its statement: the part that peers may see.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from lethe.identity import WIDTH
from lethe.ids import RULE, is_id
from workers.secure_sum.errors import (
    ForeignRoundError,
    MalformedMessageError,
    TooFewContributorsError,
    UnknownMemberError,
    WrongLengthError,
)
from workers.secure_sum.keys import KEY_BYTES, SEED_BYTES
from workers.secure_sum.plan import RoundPlan
from workers.secure_sum.shares import SEALED_BYTES
from workers.secure_sum.signing import Roster, SigningKey, check, sign
from workers.secure_sum.spelling import parse, spell, to_bytes, to_text
from workers.secure_sum.vector import Vector

STEPS = ("advertise", "share", "masked", "confirm", "reveal")


@dataclass(frozen=True, slots=True)
class Advertisement:
    """Step 1: this round's public keys, 32 bytes each.

    cipher and mask are X25519 keys, for sealing shares and for agreeing on masks; commitment
    must be derived from the self mask's seed.
    """

    step: ClassVar[str] = "advertise"
    cipher: bytes
    mask: bytes
    commitment: bytes

    def body(self) -> dict[str, Any]:
        """Return the message's body as JSON."""
        return {
            "cipher": to_text(self.cipher),
            "commitment": to_text(self.commitment),
            "mask": to_text(self.mask),
        }

    @classmethod
    def parse(cls, plan: RoundPlan, body: dict[str, Any]) -> Self:
        """Return the message of a body."""
        names = ("cipher", "mask", "commitment")
        return cls(*(_sized(body[name], KEY_BYTES) for name in names))


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """Step 2: for each peer, sealed shares of the sender's two seeds."""

    step: ClassVar[str] = "share"
    sealed: Mapping[str, bytes]

    def body(self) -> dict[str, Any]:
        """Return the message's body as JSON."""
        return {"shares": {peer: to_text(data) for peer, data in self.sealed.items()}}

    @classmethod
    def parse(cls, plan: RoundPlan, body: dict[str, Any]) -> Self:
        """Return the message of a body."""
        return cls(_by_member(plan, body["shares"], SEALED_BYTES))


@dataclass(frozen=True, slots=True)
class Statement:
    """A member's signed statement to its peers about its masked input, inside that message.

    added, released: numbers of records. input: SHA-256 of the masked vector as sent. content:
    32 bytes, equal in two rounds exactly if the unmasked vectors are, and each other's
    `opposite` exactly if these are opposite. seen: as `seen_digest`.
    """

    step: ClassVar[str] = "statement"
    added: int
    released: int
    input: bytes
    content: bytes
    seen: bytes

    @property
    def moved(self) -> int:
        """The number of records that the sender adds or releases."""
        return self.added + self.released

    def body(self) -> dict[str, Any]:
        """Return the message's body as JSON."""
        return {
            "added": self.added,
            "content": to_text(self.content),
            "input": to_text(self.input),
            "released": self.released,
            "seen": to_text(self.seen),
        }

    @classmethod
    def parse(cls, plan: RoundPlan, body: dict[str, Any]) -> Self:
        """Return the message of a body."""
        counts = [body[name] for name in ("added", "released")]
        if any(type(count) is not int or count < 0 for count in counts):
            raise MalformedMessageError(
                "a statement's `added` and `released` must be whole numbers, 0 or more"
            )
        digests = (_sized(body[name], KEY_BYTES) for name in ("input", "content", "seen"))
        return cls(*counts, *digests)


@dataclass(frozen=True, slots=True, eq=False)
class MaskedInput:
    """Step 3: the masked vector (plan.length,) and, in clear, the ids of its records.

    peers: all members whose masks are in it, and the sender. adds: (record, subject) of each
    added row; releases: released records. statement: the signed bytes of the sender's
    `Statement`. people: by kind, an identity digest of each added record, WIDTH bytes each,
    as `lethe.identity.pack` writes them.
    """

    step: ClassVar[str] = "masked"
    peers: tuple[str, ...]
    vector: Vector
    adds: tuple[tuple[str, str], ...] = ()
    releases: tuple[str, ...] = ()
    statement: bytes = b""
    people: Mapping[str, bytes] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """Return the message's body as JSON."""
        return {
            "adds": [{"record": record, "subject": subject} for record, subject in self.adds],
            "peers": list(self.peers),
            "people": {kind: to_text(data) for kind, data in self.people.items()},
            "releases": list(self.releases),
            "statement": self.statement.decode(),
            "vector": to_text(self.vector.astype("<u8").tobytes()),
        }

    @classmethod
    def parse(cls, plan: RoundPlan, body: dict[str, Any]) -> Self:
        """Return the message of a body."""
        data = _sized(body["vector"], 8 * plan.length)
        adds = tuple((_text(item["record"]), _text(item["subject"])) for item in body["adds"])
        releases = tuple(_text(record) for record in body["releases"])
        moved = [record for record, _ in adds] + list(releases)
        if len(set(moved)) != len(moved):
            raise MalformedMessageError("a record is added or released twice in one message")
        peers = tuple(_text(peer) for peer in body["peers"])
        _known(plan, peers)
        people = {
            _text(kind): _sized(text, WIDTH * len(adds))
            for kind, text in body["people"].items()
        }
        vector = np.frombuffer(data, "<u8").astype(np.uint64)
        return cls(peers, vector, adds, releases, body["statement"].encode(), people)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Step 4: the statements that the sender was shown, as `statements_digest`.

    A member reveals only after a strict majority confirmed the same statements, so a server
    that shows members different survivors gets no sum.
    """

    step: ClassVar[str] = "confirm"
    statements: bytes

    def body(self) -> dict[str, Any]:
        """Return the message's body as JSON."""
        return {"statements": to_text(self.statements)}

    @classmethod
    def parse(cls, plan: RoundPlan, body: dict[str, Any]) -> Self:
        """Return the message of a body."""
        return cls(_sized(body["statements"], KEY_BYTES))


@dataclass(frozen=True, slots=True)
class Reveal:
    """Step 5: the sender's shares, 16 bytes each; never both of one member.

    self_shares: for the self seeds of the survivors. mask_shares: for the mask seeds of the
    members that dropped out after step 2.
    """

    step: ClassVar[str] = "reveal"
    self_shares: Mapping[str, bytes]
    mask_shares: Mapping[str, bytes]

    def body(self) -> dict[str, Any]:
        """Return the message's body as JSON."""
        return {
            "mask": {peer: to_text(share) for peer, share in self.mask_shares.items()},
            "self": {peer: to_text(share) for peer, share in self.self_shares.items()},
        }

    @classmethod
    def parse(cls, plan: RoundPlan, body: dict[str, Any]) -> Self:
        """Return the message of a body."""
        return cls(
            _by_member(plan, body["self"], SEED_BYTES),
            _by_member(plan, body["mask"], SEED_BYTES),
        )


Message = Advertisement | SharedKeys | Statement | MaskedInput | Confirmation | Reveal
_KINDS: dict[str, type[Message]] = {
    kind.step: kind
    for kind in (Advertisement, SharedKeys, Statement, MaskedInput, Confirmation, Reveal)
}


def opposite(content: bytes) -> bytes:
    """Return the content of the opposite vector: the last bit is its sign."""
    return content[:-1] + bytes([content[-1] ^ 1])


def input_digest(vector: Vector) -> bytes:
    """Return the SHA-256 of a masked vector as sent."""
    return hashlib.sha256(vector.astype("<u8").tobytes()).digest()


def seen_digest(advertised: Mapping[str, Advertisement], peers: Iterable[str]) -> bytes:
    """Return the SHA-256 of the keys that a member was shown and the peers it masked with."""
    bodies = {name: message.body() for name, message in advertised.items()}
    return hashlib.sha256(spell({"advertised": bodies, "peers": sorted(peers)})).digest()


def statements_digest(statements: Mapping[str, Statement]) -> bytes:
    """Return the SHA-256 of the statements of the members in a sum."""
    bodies = {name: message.body() for name, message in statements.items()}
    return hashlib.sha256(spell(bodies)).digest()


def check_contributions(plan: RoundPlan, statements: Mapping[str, Statement]) -> None:
    """Return if the sum hides each contributor among as many as the plan requires.

    Raises TooFewContributorsError otherwise.
    """
    moved = [message.moved for message in statements.values() if message.moved]
    if moved and (len(moved) < plan.least_contributors or sum(moved) < plan.least_rows):
        raise TooFewContributorsError(
            f"{len(moved)} members move {sum(moved)} records, and {plan.least_contributors} "
            f"and {plan.least_rows} are the least: the sum would show what single members "
            "sent; join a round in which more members add or release something"
        )


def sign_message(plan: RoundPlan, sender: str, message: Message, key: SigningKey) -> bytes:
    """Return the signed bytes of a message."""
    signed = {
        "body": message.body(),
        "from": sender,
        "plan": plan.digest.hex(),
        "step": message.step,
    }
    return spell({**signed, "signature": to_text(sign(key, spell(signed)))})


def open_message(plan: RoundPlan, data: bytes, roster: Roster) -> tuple[str, Message]:
    """Return (sender, message) of `sign_message`'s bytes.

    Raises:
        MalformedMessageError: Not a canonical message.
        ForeignRoundError: Of another round or plan.
        UnknownMemberError: From or about a member that is not on the roster.
        ForgedMessageError: Not signed by its sender.
        WrongLengthError: A vector, key or share of another size than the plan's.
    """
    document = parse(data)
    if not isinstance(document, dict) or set(document) != _MEMBERS:
        raise MalformedMessageError(
            "a message must have exactly body, from, plan, signature and step: "
            "send what the client wrote"
        )
    if document["plan"] != plan.digest.hex():
        raise ForeignRoundError(
            "a message belongs to another round, or to another plan of this one"
        )
    sender, step = document["from"], document["step"]
    if not isinstance(sender, str) or sender not in plan.members or sender not in roster:
        raise UnknownMemberError("a message comes from a key that is not on the roster")
    signature = to_bytes(document.pop("signature"))
    check(roster[sender], spell(document), signature)
    try:
        message = _KINDS[step].parse(plan, document["body"])
    except (AttributeError, KeyError, TypeError):
        raise MalformedMessageError(
            "a message's body lacks a field of its step, or has one of another type"
        ) from None
    if message.body() != document["body"]:
        raise MalformedMessageError("a message's body has a field that its step does not have")
    return sender, message


_MEMBERS = {"body", "from", "plan", "signature", "step"}


def _sized(text: object, size: int) -> bytes:
    data = to_bytes(text)
    if len(data) != size:
        raise WrongLengthError(f"a vector, key or share in a message must have {size} bytes")
    return data


def _text(value: object) -> str:
    if not isinstance(value, str) or not is_id(value):
        raise MalformedMessageError(f"an id in a message must have {RULE}")
    return value


def _by_member(plan: RoundPlan, body: dict[str, Any], size: int) -> dict[str, bytes]:
    _known(plan, body.keys())
    return {peer: _sized(text, size) for peer, text in body.items()}


def _known(plan: RoundPlan, names: object) -> None:
    members = list(names)  # type: ignore[call-overload]
    if not set(members) <= set(plan.members):
        raise UnknownMemberError("a message names a member that is not in the round's plan")
    if members != sorted(set(members)):
        raise MalformedMessageError("a message must name members in ascending order, each once")
