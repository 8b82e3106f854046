"""A member's side of one round. Its secrets live only as long as the object.

A member that restarts loses its secrets and has dropped out: secrets on disk would outlive
the round.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from workers.secure_sum import messages
from workers.secure_sum.errors import (
    DuplicateMessageError,
    MaskMismatchError,
    PlanError,
    SecrecyError,
    TooFewSurvivorsError,
    UnknownMemberError,
    WrongLengthError,
)
from workers.secure_sum.keys import (
    SEED_BYTES,
    Secrets,
    commit_self_seed,
    mask_key,
    public_bytes,
)
from workers.secure_sum.messages import (
    Advertisement,
    Confirmation,
    MaskedInput,
    Message,
    Reveal,
    SharedKeys,
    Statement,
)
from workers.secure_sum.plan import RoundPlan
from workers.secure_sum.shares import open_shares, seal_shares, split
from workers.secure_sum.signing import Roster, SigningKey
from workers.secure_sum.vector import (
    Vector,
    add_mask,
    pair_key,
    pair_sign,
    self_key,
    without_sign,
)

Kind = TypeVar("Kind", Advertisement, Statement, Confirmation)


class Member:
    """Takes the five steps in order, each once; a repeated request gets the same bytes.

    A repeated request with other inputs is refused, because two answers together could reveal
    what neither reveals alone.
    """

    def __init__(
        self,
        plan: RoundPlan,
        name: str,
        key: SigningKey,
        roster: Roster,
        secret: bytes | None = None,
        seeds: Secrets | None = None,
    ) -> None:
        """Prepare for a round.

        Args:
            plan: The announced plan; RoundPlan has checked its shape and threshold.
            name: The member's own keyid.
            key: The member's registered signing key.
            roster: The pinned public keys of its peers, from a source other than the service.
            secret: 32 bytes that the member keeps across rounds, so that peers see whether it
                contributes the same again; random if None.
            seeds: The member's secrets of this round; fresh ones if None.

        Raises:
            PlanError: The plan does not include this member, or includes a stranger.
        """
        if name not in plan.members:
            raise PlanError("the round's plan does not name this key: ask the operator")
        strangers = set(plan.members) - set(roster)
        if strangers:
            raise PlanError(
                f"{len(strangers)} of the round's members are not in the roster file: get "
                "their keys from themselves, not from the service"
            )
        self.plan, self.name = plan, name
        self._key, self._roster = key, roster
        self._secret = secret or secrets.token_bytes(32)
        self._secrets = seeds or Secrets()
        self._mask_key = mask_key(self._secrets.mask_seed, plan, name)
        self.peers: dict[str, Advertisement] = {}  # those of step 2
        self._stated: Statement | None = None
        self._survivors: dict[str, Statement] = {}
        self._held: dict[str, bytes] = {}  # 16 bytes of the mask seed, 16 of the self seed
        self._answers: dict[str, tuple[object, bytes]] = {}

    def advertise(self) -> bytes:
        """Return step 1's message: this round's public keys."""
        commitment = commit_self_seed(self._secrets.self_seed, self.plan, self.name)
        return self._answer(
            Advertisement.step,
            None,
            lambda: Advertisement(
                public_bytes(self._secrets.cipher), public_bytes(self._mask_key), commitment
            ),
        )

    def share_keys(self, advertised: Iterable[bytes]) -> bytes:
        """Return step 2's message: shares of this member's seeds for each advertised member.

        Raises:
            TooFewSurvivorsError: Fewer than the threshold advertised.
            RoundError: A message was not written by its pinned sender for this round.
        """
        peers = self._open(advertised, Advertisement)
        self._enough(peers)
        keys = [key for peer in peers.values() for key in (peer.cipher, peer.mask)]
        if len(set(keys)) != len(keys):
            raise MaskMismatchError(
                "two members advertised the same key: leave this round and tell its operator"
            )
        own = self.advertise()
        if messages.open_message(self.plan, own, self._roster)[1] != peers.get(self.name):
            raise MaskMismatchError("the service shows another key in this member's name")
        return self._answer(SharedKeys.step, peers, lambda: self._share(peers))

    def _share(self, peers: dict[str, Advertisement]) -> SharedKeys:
        self.peers = peers
        of_mask = split(self.plan, self._secrets.mask_seed)
        of_self = split(self.plan, self._secrets.self_seed)
        pairs = {peer: of_mask[peer] + of_self[peer] for peer in peers}
        self._held[self.name] = pairs.pop(self.name)
        return SharedKeys(
            {
                peer: seal_shares(
                    self.plan,
                    self._secrets.cipher,
                    self.name,
                    peer,
                    peers[peer].cipher,
                    pair,
                )
                for peer, pair in sorted(pairs.items())
            }
        )

    def masked_input(
        self,
        sealed: Mapping[str, bytes],
        vector: Vector,
        adds: Iterable[tuple[str, str]] = (),
        releases: Iterable[str] = (),
        people: Mapping[str, bytes] = MappingProxyType({}),
    ) -> bytes:
        """Return step 3's message: the masked vector, and the ids of its records.

        Args:
            sealed: The shares that each peer of step 2 sealed to this member.
            vector: The sum of added rows less released ones; not modified.
            adds: (record, subject) of each added record.
            releases: Released records.
            people: By kind, the identity digests of the added records, in order.

        Raises:
            TooFewSurvivorsError: Fewer than the threshold took step 2.
            UnknownMemberError: Shares from a member that did not advertise.
            MaskMismatchError: Shares not made for this member and plan.
            WrongLengthError: The vector has another length than the plan's.
        """
        if vector.shape != (self.plan.length,):
            raise WrongLengthError(
                f"the vector must have {self.plan.length} entries, as the round's model needs"
            )
        self._after(SharedKeys.step)
        if not set(sealed) <= set(self.peers) - {self.name}:
            raise UnknownMemberError(
                "shares come from a member that advertised no key: leave this round "
                "and tell its operator"
            )
        self._enough({*sealed, self.name})
        digest = hashlib.sha256(vector.tobytes()).digest()
        inputs = (dict(sealed), digest, tuple(adds), tuple(releases), dict(people))
        return self._answer(
            MaskedInput.step, inputs, lambda: self._mask(sealed, vector, *inputs[2:])
        )

    def _mask(
        self,
        sealed: Mapping[str, bytes],
        vector: Vector,
        adds: tuple[tuple[str, str], ...],
        releases: tuple[str, ...],
        people: Mapping[str, bytes],
    ) -> MaskedInput:
        held = {
            peer: open_shares(
                self.plan,
                self._secrets.cipher,
                self.name,
                peer,
                self.peers[peer].cipher,
                data,
            )
            for peer, data in sealed.items()
        }
        masked = vector.copy()
        add_mask(masked, self_key(self.plan, self._secrets.self_seed, self.name), +1)
        for peer in sealed:
            key = pair_key(self.plan, self._mask_key, self.name, peer, self.peers[peer].mask)
            add_mask(masked, key, pair_sign(self.name, peer))
        self._held |= held
        content = b"lethe/masked-round/content/v1\0" + self.plan.model.encode() + b"\0"
        moved, negated = without_sign(vector, len(adds), len(releases))
        digest = hmac.digest(self._secret, content + moved, "sha256")
        self._stated = Statement(
            len(adds),
            len(releases),
            messages.input_digest(masked),
            messages.opposite(digest) if negated else digest,
            messages.seen_digest(self.peers, self._held),
        )
        statement = messages.sign_message(self.plan, self.name, self._stated, self._key)
        peers = tuple(sorted(self._held))
        return MaskedInput(peers, masked, adds, releases, statement, people)

    def statements(self, data: Iterable[bytes]) -> dict[str, Statement]:
        """Return the statements of the members to be summed, by member.

        Raises:
            TooFewSurvivorsError: Fewer than the threshold: their sum stays masked.
            UnknownMemberError: A member whose masks are not in this member's input.
            MaskMismatchError: A member was shown other keys or peers than this one, or this
                member's own statement was changed.
            RoundError: A statement was not written by its pinned sender for this round.
        """
        self._after(MaskedInput.step)
        found = self._open(data, Statement)
        if self.name not in found or not set(found) <= set(self._held):
            raise UnknownMemberError(
                "the members named in the sum lack this one, or have one that it did "
                "not mask with: answered nothing"
            )
        assert self._stated is not None
        if found[self.name] != self._stated or any(
            one.seen != self._stated.seen for one in found.values()
        ):
            raise MaskMismatchError(
                "the service showed members different keys or peers, or changed what this "
                "one stated: answered nothing"
            )
        self._enough(found)
        return found

    def confirm(self, data: Iterable[bytes]) -> bytes:
        """Return step 4's message: this member's confirmation of the members to be summed.

        Raises:
            TooFewContributorsError: The sum would show what single members sent.
            SecrecyError: Other members were confirmed before: both sums together could expose a
                single input.
            RoundError: As `statements`.
        """
        found = self.statements(data)
        messages.check_contributions(self.plan, found)
        if self._survivors and self._survivors != found:
            raise SecrecyError(
                "the service now names other members in the sum than before: answered nothing"
            )
        self._survivors = found
        digest = messages.statements_digest(found)
        return self._answer(Confirmation.step, None, lambda: Confirmation(digest))

    def reveal(self, confirmed: Iterable[bytes]) -> bytes:
        """Return step 5's message: the shares that unmask the confirmed sum.

        Raises:
            TooFewSurvivorsError: Fewer than the threshold have confirmed the same members.
            UnknownMemberError: A confirmation from a member that is not in the sum.
            SecrecyError: A member confirmed other members than this one.
        """
        self._after(Confirmation.step)
        found = self._open(confirmed, Confirmation)
        if not set(found) <= set(self._survivors):
            raise UnknownMemberError(
                "a member confirms a sum that it is not in: answered nothing"
            )
        digest = messages.statements_digest(self._survivors)
        if any(one.statements != digest for one in found.values()):
            raise SecrecyError(
                "the service named different members in the sum to different members: "
                "answered nothing"
            )
        self._enough(found)
        remaining = set(self._survivors)
        answer = Reveal(
            {peer: self._held[peer][SEED_BYTES:] for peer in sorted(remaining)},
            {
                peer: self._held[peer][:SEED_BYTES]
                for peer in sorted(set(self._held) - remaining)
            },
        )
        # The invariant of the protocol, whatever becomes of the code above.
        assert not set(answer.self_shares) & set(answer.mask_shares)
        return self._answer(Reveal.step, None, lambda: answer)

    def _open(self, data: Iterable[bytes], kind: type[Kind]) -> dict[str, Kind]:
        found: dict[str, Kind] = {}
        for item in data:
            sender, message = messages.open_message(self.plan, item, self._roster)
            if not isinstance(message, kind):
                raise MaskMismatchError(
                    "the service shows messages of another step than this one: leave this "
                    "round and tell its operator"
                )
            if sender in found:
                raise DuplicateMessageError(
                    "the service shows two messages of one member for this step: leave "
                    "this round and tell its operator"
                )
            found[sender] = message
        return found

    def _enough(self, members: Iterable[str]) -> None:
        count = len(set(members))
        if count < self.plan.threshold:
            raise TooFewSurvivorsError(
                f"{count} members remain and {self.plan.threshold} are needed: the round is "
                "over; the operator opens a new one"
            )

    def _after(self, step: str) -> None:
        if step not in self._answers:
            raise DuplicateMessageError("the steps of a round are taken in their order")

    def _answer(self, step: str, inputs: object, make: Callable[[], Message]) -> bytes:
        if step in self._answers:
            before, answer = self._answers[step]
            if before != inputs:
                raise DuplicateMessageError(
                    "this step was taken before, with other messages: it is not taken again"
                )
            return answer
        answer = messages.sign_message(self.plan, self.name, make(), self._key)
        self._answers[step] = (inputs, answer)
        return answer
