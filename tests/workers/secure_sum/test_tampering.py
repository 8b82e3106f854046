"""Flipped bits and lies, one per case: named if detectable, documented if not."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from Crypto.Protocol.SecretSharing import Shamir

from tests.workers.secure_sum.rounds import Play, plain_sum, plan_of, random_inputs, stand_by
from workers.secure_sum import messages
from workers.secure_sum.aggregate import read_transcript, unmask
from workers.secure_sum.errors import (
    DuplicateMessageError,
    ForeignRoundError,
    ForgedMessageError,
    MaskMismatchError,
    RoundError,
    TooFewContributorsError,
)
from workers.secure_sum.messages import MaskedInput, Reveal, open_message, sign_message

OTHER = "00000000-0000-4000-8000-000000000002"


@pytest.fixture
def play() -> Play:
    plan = plan_of(4, 3)
    return Play(plan, random_inputs(plan, 9), {"member-3": "masked"}).run()


def lie(play: Play, part: dict[str, bytes], name: str, change: Callable[[Any], Any]) -> None:
    """Replace a member's message by another one that it signs itself."""
    _, message = open_message(play.plan, part[name], play.roster)
    part[name] = sign_message(play.plan, name, change(message), play.keys[name])


def flipped(data: bytes, position: int = 0) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


@pytest.mark.parametrize("part", ["advertised", "shared", "masked", "confirmed", "revealed"])
def test_a_bit_flipped_on_the_way_is_no_message_of_its_sender(play: Play, part: str) -> None:
    found = getattr(play, part)
    document = json.loads(found["member-1"])
    body = json.dumps(document["body"])
    position = next(i for i, c in enumerate(body) if c == '"' and len(body[i:]) > 20) + 30
    other = "B" if body[position] != "B" else "C"
    document["body"] = json.loads(body[:position] + other + body[position + 1 :])
    found["member-1"] = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    ).encode()
    with pytest.raises(RoundError) as refused:
        play.aggregate()
    assert not isinstance(refused.value, MaskMismatchError)


def test_a_flipped_signature_is_forged(play: Play) -> None:
    document = json.loads(play.masked["member-1"])
    signature = base64.b64decode(document["signature"])
    document["signature"] = base64.b64encode(flipped(signature)).decode()
    data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(ForgedMessageError):
        open_message(play.plan, data, play.roster)


@pytest.mark.parametrize("which", ["self_shares", "mask_shares"])
def test_a_wrong_share_among_just_enough_is_a_mismatch(play: Play, which: str) -> None:
    def change(message: Reveal) -> Reveal:
        shares = dict(getattr(message, which))
        name = next(iter(shares))
        return replace(message, **{which: {**shares, name: flipped(shares[name])}})

    lie(play, play.revealed, "member-1", change)
    with pytest.raises(MaskMismatchError, match="shares do not make the secret"):
        play.aggregate()


def test_a_wrong_share_among_more_than_enough_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []
    combine = Shamir.combine

    def counted(points: list[Any], **how: Any) -> bytes:
        tried.append(points)
        return bytes(combine(points, **how))

    monkeypatch.setattr(Shamir, "combine", counted)
    plan = plan_of(5, 3)
    inputs = random_inputs(plan, 4)
    play = Play(plan, inputs).run()

    def change(message: Reveal) -> Reveal:
        return replace(
            message, self_shares={n: flipped(s) for n, s in message.self_shares.items()}
        )

    lie(play, play.revealed, "member-0", change)
    found = play.aggregate()
    assert np.array_equal(found.vector, plain_sum(plan, inputs, plan.members))
    # The six triples with member-0, and the first one without; then its shares come last.
    assert len(tried) == 7 + len(plan.members) - 1


def test_shares_that_were_lies_from_the_start_are_a_mismatch(play: Play) -> None:
    """A member deals shares of another seed: its peers cannot tell, the server can."""
    plan = plan_of(3, 2)
    bad = Play(plan, random_inputs(plan, 5)).advertise()
    object.__setattr__(bad.seeds["member-1"], "self_seed", bytes(16))
    bad.share().mask().confirm().reveal()
    with pytest.raises(MaskMismatchError):
        bad.aggregate()


def test_an_input_that_its_own_sender_changed_shows_only_in_the_sum(play: Play) -> None:
    """What the masks cannot show: the sum is off by exactly the lie (see `plausible`)."""
    plan, inputs = play.plan, play.inputs

    def change(message: MaskedInput) -> MaskedInput:
        vector = message.vector.copy()
        vector[5] ^= np.uint64(1 << 40)
        return replace(message, vector=vector)

    play = Play(plan, inputs, play.gone).advertise().share()
    stand_by(play.members["member-1"], play.keys["member-1"], play.roster, change)
    found = play.mask().confirm().reveal().aggregate()
    difference = found.vector - plain_sum(plan, inputs, found.survivors)
    assert np.flatnonzero(difference).tolist() == [5]
    assert int(difference[5]) in (1 << 40, 2**64 - (1 << 40))


def test_an_input_masked_for_other_peers_is_a_mismatch(play: Play) -> None:
    def change(message: MaskedInput) -> MaskedInput:
        return replace(message, peers=message.peers[:-1])

    lie(play, play.masked, "member-1", change)
    with pytest.raises(MaskMismatchError, match="would not cancel"):
        play.aggregate()


def test_survivors_that_one_member_saw_otherwise_are_a_mismatch() -> None:
    plan = plan_of(4, 3)
    play = Play(plan, random_inputs(plan, 6)).advertise().share().mask()
    for name in plan.members:
        seen = plan.members[:3] if name == "member-1" else plan.members
        play.confirmed[name] = play.members[name].confirm(play.stated(*seen))
    with pytest.raises(MaskMismatchError, match="would not cancel"):
        play.aggregate()


def test_an_input_that_is_not_what_its_statement_says(play: Play) -> None:
    def change(message: MaskedInput) -> MaskedInput:
        return replace(message, releases=())

    lie(play, play.masked, "member-1", change)
    with pytest.raises(MaskMismatchError, match="would not cancel"):
        play.aggregate()


def test_the_server_does_not_unmask_what_too_few_contribute_to(play: Play) -> None:
    """Had the members not refused."""
    strict = replace(play.plan, least_contributors=4)
    found = read_transcript(play.plan, play.roster, play.messages())
    with pytest.raises(TooFewContributorsError):
        unmask(strict, found)


def test_messages_of_another_round_are_replays(play: Play) -> None:
    other = plan_of(4, 3, round_id=OTHER)
    for data in play.messages():
        with pytest.raises(ForeignRoundError):
            open_message(other, data, play.roster)


def test_the_plan_is_all_of_it() -> None:
    """Another threshold, version or shape is another plan: its messages cannot be mixed in."""
    plan = plan_of(4, 3)
    others = [
        replace(plan, threshold=4),
        replace(plan, version=5),
        replace(plan, classes=3),
        replace(plan, model="other"),
        replace(plan, configuration="cd" * 32),
        replace(plan, members=plan.members[:3], threshold=3),
    ]
    assert len({plan.digest, *(other.digest for other in others)}) == 7


def test_two_messages_of_one_member_for_one_step(play: Play) -> None:
    twin = Play(play.plan, play.inputs, keys=play.keys).advertise()
    with pytest.raises(DuplicateMessageError):
        read_transcript(play.plan, play.roster, [*play.messages(), twin.advertised["member-0"]])


def test_an_input_without_its_advertisement(play: Play) -> None:
    del play.advertised["member-1"]
    with pytest.raises(MaskMismatchError):
        play.aggregate()


def test_the_transcript_gives_the_same_sum_in_any_order(play: Play) -> None:
    forward = play.aggregate()
    found = read_transcript(play.plan, play.roster, reversed(play.messages()))
    assert np.array_equal(unmask(play.plan, found).vector, forward.vector)
    assert messages.STEPS == ("advertise", "share", "masked", "confirm", "reveal")
