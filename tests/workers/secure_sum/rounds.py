"""A round played in one process: the members and a simulated server."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from workers.secure_sum.aggregate import Aggregate, read_transcript, unmask
from workers.secure_sum.keys import Secrets
from workers.secure_sum.member import Member
from workers.secure_sum.messages import (
    MaskedInput,
    SharedKeys,
    Statement,
    input_digest,
    open_message,
    sign_message,
)
from workers.secure_sum.plan import RoundPlan
from workers.secure_sum.signing import Roster, SigningKey, VerifyKey
from workers.secure_sum.vector import Vector

ROUND = "00000000-0000-4000-8000-000000000001"
Change = Callable[[bytes], bytes]


def plan_of(
    members: int,
    threshold: int,
    *,
    round_id: str = ROUND,
    dimension: int = 3,
    classes: int = 2,
    least: tuple[int, int] = (1, 1),
) -> RoundPlan:
    names = tuple(sorted(f"member-{i}" for i in range(members)))
    return RoundPlan(
        round_id, "demo", "ab" * 32, 4, dimension, classes, names, threshold, *least
    )


def keys_of(plan: RoundPlan) -> dict[str, SigningKey]:
    """A signing key for each member, of either kind in turn."""
    return {
        name: Ed25519PrivateKey.generate() if i % 2 else generate_private_key(SECP256R1())
        for i, name in enumerate(plan.members)
    }


def public(keys: Mapping[str, SigningKey]) -> dict[str, VerifyKey]:
    return {name: key.public_key() for name, key in keys.items()}


@dataclass
class Play:
    """The messages of a round, step by step; `gone[step]` send nothing from that step on."""

    plan: RoundPlan
    inputs: Mapping[str, Vector]
    gone: Mapping[str, str] = field(default_factory=dict)  # member -> first step it misses
    keys: dict[str, SigningKey] = field(default_factory=dict)
    secret: bytes | None = None  # of every member, across rounds
    advertised: dict[str, bytes] = field(default_factory=dict)
    shared: dict[str, bytes] = field(default_factory=dict)
    masked: dict[str, bytes] = field(default_factory=dict)
    confirmed: dict[str, bytes] = field(default_factory=dict)
    revealed: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keys = self.keys or keys_of(self.plan)
        self.roster = public(self.keys)
        self.seeds = {name: Secrets() for name in self.plan.members}
        self.members = {
            name: Member(self.plan, name, self.keys[name], self.roster, self.secret, seeds)
            for name, seeds in self.seeds.items()
        }

    def there(self, step: str, among: Mapping[str, object]) -> list[str]:
        order = ("advertise", "share", "masked", "confirm", "reveal", "never")
        return [
            name
            for name in among
            if order.index(self.gone.get(name, "never")) > order.index(step)
        ]

    def sealed_to(self, name: str) -> dict[str, bytes]:
        found = {}
        for data in self.shared.values():
            sender, message = open_message(self.plan, data, self.roster)
            assert isinstance(message, SharedKeys)
            if sender != name:
                found[sender] = message.sealed[name]
        return found

    def advertise(self) -> "Play":
        for name in self.there("advertise", self.members):
            self.advertised[name] = self.members[name].advertise()
        return self

    def share(self) -> "Play":
        for name in self.there("share", self.advertised):
            self.shared[name] = self.members[name].share_keys(self.advertised.values())
        return self

    def mask(self) -> "Play":
        for name in self.there("masked", self.shared):
            self.masked[name] = self.members[name].masked_input(
                self.sealed_to(name), self.inputs[name], [(f"r-{name}", "s")], [f"old-{name}"]
            )
        return self

    def stated(self, *names: str) -> list[bytes]:
        """The statements inside the inputs of some members, or of all."""
        found = []
        for name in names or self.masked:
            _, message = open_message(self.plan, self.masked[name], self.roster)
            assert isinstance(message, MaskedInput)
            found.append(message.statement)
        return found

    def confirm(self) -> "Play":
        for name in self.there("confirm", self.masked):
            self.confirmed[name] = self.members[name].confirm(self.stated())
        return self

    def reveal(self) -> "Play":
        for name in self.there("reveal", self.confirmed):
            self.revealed[name] = self.members[name].reveal(self.confirmed.values())
        return self

    def run(self) -> "Play":
        return self.advertise().share().mask().confirm().reveal()

    def messages(self) -> list[bytes]:
        parts = (self.advertised, self.shared, self.masked, self.confirmed, self.revealed)
        return [data for part in parts for data in part.values()]

    def aggregate(self) -> Aggregate:
        found = read_transcript(self.plan, self.roster, self.messages())
        return unmask(self.plan, found)


def restated(play: Play, name: str, message: MaskedInput) -> MaskedInput:
    """Return another input of a member with a liar's matching statement."""
    _, stated = open_message(play.plan, message.statement, play.roster)
    assert isinstance(stated, Statement)
    stated = replace(
        stated,
        added=len(message.adds),
        released=len(message.releases),
        input=input_digest(message.vector),
    )
    signed = sign_message(play.plan, name, stated, play.keys[name])
    return replace(message, statement=signed)


def random_inputs(plan: RoundPlan, seed: int) -> dict[str, Vector]:
    """Vectors over all of 2^64, the extremes among them."""
    generator = np.random.default_rng(seed)
    inputs = {
        name: generator.integers(0, 2**64, plan.length, dtype=np.uint64, endpoint=False)
        for name in plan.members
    }
    for vector in inputs.values():
        vector[:3] = 0, 2**63, 2**64 - 1
    return inputs


def plain_sum(plan: RoundPlan, inputs: Mapping[str, Vector], names: tuple[str, ...]) -> Vector:
    """The sum in Python's own integers, which share no arithmetic with NumPy's."""
    total = [0] * plan.length
    for name in names:
        total = [(a + int(b)) % 2**64 for a, b in zip(total, inputs[name], strict=True)]
    return np.array(total, dtype=np.uint64)


def stand_by(
    member: Member,
    key: SigningKey,
    roster: Roster,
    change: Callable[[MaskedInput], MaskedInput],
) -> None:
    """Let a member sign another input than it is given, and hold to it in what follows."""
    plan, honest = member.plan, (member.masked_input, member.statements)
    told: dict[bytes, bytes] = {}  # the statement that it signed instead, and its own

    def masked_input(*arguments: Any) -> bytes:
        _, message = open_message(plan, honest[0](*arguments), roster)
        assert isinstance(message, MaskedInput)
        changed = change(message)
        _, own = open_message(plan, message.statement, roster)
        assert isinstance(own, Statement)
        other = replace(own, input=input_digest(changed.vector))
        signed = sign_message(plan, member.name, other, key)
        told[signed] = message.statement
        return sign_message(plan, member.name, replace(changed, statement=signed), key)

    def statements(data: Iterable[bytes]) -> dict[str, Statement]:
        shown = list(data)
        honest[1](told.get(one, one) for one in shown)
        opened = (open_message(plan, one, roster) for one in shown)
        return {name: one for name, one in opened if isinstance(one, Statement)}

    for name, method in (("masked_input", masked_input), ("statements", statements)):
        setattr(member, name, method)
