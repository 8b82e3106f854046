"""A member's refusals, and the two shares it never gives together."""

import json
from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tests.workers.secure_sum.rounds import Play, keys_of, plan_of, public, random_inputs
from workers.secure_sum.errors import (
    DuplicateMessageError,
    ForgedMessageError,
    MaskMismatchError,
    PlanError,
    RoundError,
    SecrecyError,
    TooFewContributorsError,
    TooFewSurvivorsError,
    UnknownMemberError,
    WrongLengthError,
)
from workers.secure_sum.keys import Secrets
from workers.secure_sum.member import Member
from workers.secure_sum.messages import Advertisement, Reveal, open_message, sign_message
from workers.secure_sum.spelling import spell


@pytest.fixture
def play() -> Play:
    plan = plan_of(5, 3)
    return Play(plan, random_inputs(plan, 7))


def revealed(play: Play, data: bytes) -> Reveal:
    _, message = open_message(play.plan, data, play.roster)
    assert isinstance(message, Reveal)
    return message


def test_never_both_shares_of_one_peer(play: Play) -> None:
    """Whatever survivors a server names, in whatever order: one kind of share each, once."""
    play.advertise().share().mask()
    for size in range(1, 6):
        for survivors in combinations(play.plan.members, size):
            fresh = Play(play.plan, play.inputs).advertise().share().mask()
            answers = []
            for named in (survivors, play.plan.members, survivors[::-1]):
                try:
                    said = [fresh.members[name].confirm(fresh.stated(*named)) for name in named]
                    answers.append(revealed(fresh, fresh.members["member-0"].reveal(said)))
                except RoundError:
                    continue
            of_self = {peer for answer in answers for peer in answer.self_shares}
            of_mask = {peer for answer in answers for peer in answer.mask_shares}
            assert answers or "member-0" not in survivors or size < 3
            assert not of_self & of_mask


def test_other_survivors_are_a_secrecy_refusal(play: Play) -> None:
    play.advertise().share().mask()
    member, four = play.members["member-0"], play.plan.members[:4]
    first = member.confirm(play.stated(*four))
    assert member.confirm(play.stated(*reversed(four))) == first
    with pytest.raises(SecrecyError):
        member.confirm(play.stated())


@pytest.mark.parametrize(
    ("survivors", "error"),
    [
        ((0, 1), TooFewSurvivorsError),
        ((1, 2, 3), UnknownMemberError),  # not itself
        ((), UnknownMemberError),
    ],
    ids=["below-threshold", "not-itself", "nobody"],
)
def test_refused_survivors(play: Play, survivors: tuple[int, ...], error: type) -> None:
    play.advertise().share().mask()
    stated = play.stated(*(f"member-{i}" for i in survivors)) if survivors else []
    with pytest.raises(error):
        play.members["member-0"].confirm(stated)


def test_survivors_it_did_not_mask_with(play: Play) -> None:
    """A member that the service hid from member-0 at step 2."""
    play.advertise().share()
    hidden = {name: data for name, data in play.shared.items() if name != "member-4"}
    whole, play.shared = play.shared, hidden
    play.masked["member-0"] = play.members["member-0"].masked_input(
        play.sealed_to("member-0"), play.inputs["member-0"]
    )
    play.shared = whole
    for name in play.plan.members[1:]:
        play.masked[name] = play.members[name].masked_input(
            play.sealed_to(name), play.inputs[name]
        )
    with pytest.raises(UnknownMemberError):
        play.members["member-0"].confirm(play.stated())
    with pytest.raises(MaskMismatchError, match="different keys or peers"):
        play.members["member-0"].confirm(play.stated(*play.plan.members[:4]))


def test_different_survivors_shown_to_different_members_open_nothing() -> None:
    """Eleven members; one has two others to hide among in each list, none in all lists.

    Every other contributor is missing in six lists or more, so that as many would open its
    masks as of one that dropped out, and the victim alone would be left in the sum.
    """
    plan = plan_of(11, 6, least=(3, 3))
    play = Play(plan, random_inputs(plan, 3)).advertise().share()
    victim, *rest = plan.members
    others, idle = rest[:5], rest[5:]
    for name in plan.members:
        adds = [] if name in idle else [(f"r-{name}", "s")]
        play.masked[name] = play.members[name].masked_input(
            play.sealed_to(name), play.inputs[name], adds
        )
    said: dict[str, bytes] = {}
    shown = Counter(dict.fromkeys(others, 0))
    for name in (*others, victim, *idle):
        beside = [name] * (name in others)
        beside += sorted(set(others) - {name}, key=lambda other: shown[other])[
            : 2 - len(beside)
        ]
        shown.update(beside)
        said[name] = play.members[name].confirm(play.stated(victim, *beside, *idle))
    assert max(shown.values()) <= len(plan.members) - plan.threshold
    for name in plan.members:
        with pytest.raises((SecrecyError, UnknownMemberError)):
            play.members[name].reveal(said.values())
    with pytest.raises(TooFewSurvivorsError):
        play.members[victim].reveal([said[victim]])


def test_a_sum_of_too_few_contributors_is_not_confirmed() -> None:
    """Four of five were told that their rows are already held."""
    plan = plan_of(5, 3, least=(3, 3))
    play = Play(plan, random_inputs(plan, 4)).advertise().share()
    for name in plan.members:
        adds = [("r-1", "s"), ("r-2", "s"), ("r-3", "s")] if name == "member-4" else []
        play.masked[name] = play.members[name].masked_input(
            play.sealed_to(name), play.inputs[name], adds
        )
    for name in plan.members:
        with pytest.raises(TooFewContributorsError, match="1 members move 3 records"):
            play.members[name].confirm(play.stated())


def test_so_is_one_of_too_few_records() -> None:
    plan = plan_of(3, 2, least=(3, 10))
    play = Play(plan, random_inputs(plan, 4)).advertise().share().mask()
    with pytest.raises(TooFewContributorsError, match="3 members move 6 records"):
        play.members["member-0"].confirm(play.stated())


def test_a_count_that_the_service_made_up_is_forged(play: Play) -> None:
    play.advertise().share().mask()
    stated = play.stated()
    document = json.loads(stated[1])
    document["body"]["added"] = 40
    stated[1] = spell(document)
    with pytest.raises(ForgedMessageError):
        play.members["member-0"].confirm(stated)


def test_nothing_is_revealed_before_a_majority_confirmed(play: Play) -> None:
    play.advertise().share().mask().confirm()
    member = play.members["member-0"]
    with pytest.raises(TooFewSurvivorsError):
        member.reveal(list(play.confirmed.values())[:2])
    member.reveal(list(play.confirmed.values())[:3])


def test_the_same_step_again_gives_the_same_bytes(play: Play) -> None:
    play.run()
    member = play.members["member-2"]
    assert member.advertise() == play.advertised["member-2"]
    assert member.share_keys(play.advertised.values()) == play.shared["member-2"]
    again = member.masked_input(
        play.sealed_to("member-2"),
        play.inputs["member-2"],
        [("r-member-2", "s")],
        ["old-member-2"],
    )
    assert again == play.masked["member-2"]


def test_another_input_under_the_same_masks_is_refused(play: Play) -> None:
    """Two inputs under one mask give their difference away."""
    play.run()
    with pytest.raises(DuplicateMessageError):
        play.members["member-2"].masked_input(
            play.sealed_to("member-2"), play.inputs["member-1"]
        )


def test_another_cast_after_the_shares_were_dealt_is_refused(play: Play) -> None:
    play.advertise().share()
    with pytest.raises(DuplicateMessageError):
        play.members["member-0"].share_keys(list(play.advertised.values())[:4])


def test_steps_out_of_order(play: Play) -> None:
    member = play.members["member-0"]
    with pytest.raises(DuplicateMessageError, match="order"):
        member.masked_input({}, play.inputs["member-0"])
    with pytest.raises(DuplicateMessageError, match="order"):
        member.confirm([])
    with pytest.raises(DuplicateMessageError, match="order"):
        member.reveal([])


def test_a_key_that_the_service_made_up_is_forged(play: Play) -> None:
    """The service knows every registered public key and no private one."""
    play.advertise()
    secrets = Secrets()
    fake = Advertisement(bytes(range(32)), bytes(range(1, 33)), secrets.mask_seed * 2)
    play.advertised["member-1"] = sign_message(
        play.plan, "member-1", fake, keys_of(play.plan)["member-1"]
    )
    with pytest.raises(ForgedMessageError):
        play.members["member-0"].share_keys(play.advertised.values())


def test_its_own_name_over_another_of_its_messages(play: Play) -> None:
    play.advertise()
    other = Member(play.plan, "member-0", play.keys["member-0"], play.roster)
    play.advertised["member-0"] = other.advertise()
    with pytest.raises(MaskMismatchError, match="in this member's name"):
        play.members["member-0"].share_keys(play.advertised.values())


def test_a_key_advertised_by_two(play: Play) -> None:
    """A peer that copies another's mask key would cancel against itself."""
    play.advertise()
    _, copied = open_message(play.plan, play.advertised["member-1"], play.roster)
    assert isinstance(copied, Advertisement)
    play.advertised["member-2"] = sign_message(
        play.plan, "member-2", copied, play.keys["member-2"]
    )
    with pytest.raises(MaskMismatchError, match="same key"):
        play.members["member-0"].share_keys(play.advertised.values())


@pytest.mark.parametrize("low", [bytes(32), bytes([1]) + bytes(31)], ids=["zero", "one"])
def test_a_key_of_small_order_is_no_key(play: Play, low: bytes) -> None:
    """RFC 7748 section 6.1: every agreement with it gives zeros."""
    play.advertise()
    bad = Advertisement(low, bytes(range(32)), bytes(32))
    play.advertised["member-1"] = sign_message(
        play.plan, "member-1", bad, play.keys["member-1"]
    )
    with pytest.raises(RoundError, match="no X25519"):
        play.members["member-0"].share_keys(play.advertised.values())


def test_too_few_advertised(play: Play) -> None:
    play.advertise()
    with pytest.raises(TooFewSurvivorsError):
        play.members["member-0"].share_keys(list(play.advertised.values())[:2])


def test_too_few_shared(play: Play) -> None:
    play.advertise().share()
    sealed = play.sealed_to("member-0")
    with pytest.raises(TooFewSurvivorsError):
        play.members["member-0"].masked_input(
            {"member-1": sealed["member-1"]}, play.inputs["member-0"]
        )


def test_shares_for_somebody_else(play: Play) -> None:
    play.advertise().share()
    sealed = play.sealed_to("member-0")
    sealed["member-1"], sealed["member-2"] = sealed["member-2"], sealed["member-1"]
    with pytest.raises(MaskMismatchError, match="cannot be opened"):
        play.members["member-0"].masked_input(sealed, play.inputs["member-0"])


def test_a_flipped_bit_in_sealed_shares(play: Play) -> None:
    play.advertise().share()
    sealed = play.sealed_to("member-0")
    data = sealed["member-3"]
    sealed["member-3"] = data[:5] + bytes([data[5] ^ 16]) + data[6:]
    with pytest.raises(MaskMismatchError):
        play.members["member-0"].masked_input(sealed, play.inputs["member-0"])


def test_a_vector_of_another_model(play: Play) -> None:
    play.advertise().share()
    with pytest.raises(WrongLengthError):
        play.members["member-0"].masked_input(
            play.sealed_to("member-0"), np.zeros(3, dtype=np.uint64)
        )


def test_a_plan_without_it_and_a_plan_with_strangers() -> None:
    plan = plan_of(3, 2)
    keys = keys_of(plan)
    with pytest.raises(PlanError, match="does not name this key"):
        Member(plan, "member-9", keys["member-0"], public(keys))
    known = public(keys)
    del known["member-2"]
    with pytest.raises(PlanError, match="1 of the round's members"):
        Member(plan, "member-0", keys["member-0"], known)


def test_the_input_is_not_changed(play: Play) -> None:
    before = play.inputs["member-0"].copy()
    play.run()
    assert np.array_equal(play.inputs["member-0"], before)


def test_members_on_different_plans_cannot_open_each_others_shares() -> None:
    """A server that tells members different thresholds is found out at step 2."""
    plan = plan_of(3, 2)
    play = Play(plan, random_inputs(plan, 8)).advertise()
    split = Play(replace(plan, threshold=3), play.inputs, keys=play.keys).advertise()
    with pytest.raises(RoundError, match="another plan"):
        play.members["member-0"].share_keys(
            [play.advertised["member-0"], split.advertised["member-1"]]
        )
