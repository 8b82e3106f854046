"""Whole rounds: the unmasked sum is the plain sum, whoever drops out, or nothing at all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzz
from tests.workers.secure_sum.rounds import Play, plain_sum, plan_of, random_inputs
from workers.secure_sum.errors import TooFewSurvivorsError
from workers.secure_sum.messages import MaskedInput, open_message
from workers.secure_sum.plan import least_threshold

STEPS = ("advertise", "share", "masked", "confirm", "reveal")


@st.composite
def casts(draw: st.DrawFn) -> tuple[int, int, dict[str, str], int]:
    members = draw(st.integers(2, 6))
    threshold = draw(st.integers(least_threshold(members), members))
    names = [f"member-{i}" for i in range(members)]
    leaving = draw(st.lists(st.sampled_from(names), unique=True, max_size=members))
    gone = {name: draw(st.sampled_from(STEPS)) for name in leaving}
    return members, threshold, gone, draw(st.integers(0, 2**32))


@fuzz(50)
@given(casts())
def test_the_sum_is_bit_equal_down_to_the_threshold_and_refused_below(
    cast: tuple[int, int, dict[str, str], int],
) -> None:
    members, threshold, gone, seed = cast
    plan = plan_of(members, threshold)
    inputs = random_inputs(plan, seed)
    play = Play(plan, inputs, gone)
    if members - len(gone) >= threshold:
        found = play.run().aggregate()
        expected = tuple(
            n for n in plan.members if gone.get(n, "reveal") in ("confirm", "reveal")
        )
        assert found.survivors == expected
        assert np.array_equal(found.vector, plain_sum(plan, inputs, expected))
    else:
        with pytest.raises(TooFewSurvivorsError, match=f"{threshold} are needed"):
            play.run().aggregate()


@pytest.mark.parametrize("step", STEPS)
def test_a_dropout_at_each_step_is_recovered(step: str) -> None:
    plan = plan_of(4, 3)
    inputs = random_inputs(plan, 1)
    found = Play(plan, inputs, {"member-2": step}).run().aggregate()
    remaining = tuple(n for n in plan.members if n != "member-2")
    summed = plan.members if step in ("confirm", "reveal") else remaining
    assert found.survivors == summed
    assert found.dropped == (("member-2",) if step == "masked" else ())
    assert np.array_equal(found.vector, plain_sum(plan, inputs, summed))


def test_the_server_refuses_what_members_would_refuse() -> None:
    """Below the threshold at the last step only the server knows: it must not go on."""
    plan = plan_of(4, 3)
    play = Play(plan, random_inputs(plan, 1)).run()
    for name in ("member-0", "member-1"):
        del play.revealed[name]
    with pytest.raises(TooFewSurvivorsError, match="2 members remain and 3 are needed"):
        play.aggregate()


def test_a_masked_input_looks_uniform_whatever_is_in_it() -> None:
    """χ² over the bytes of the masked zero vector; without the masks it is astronomical."""
    plan = plan_of(3, 2, dimension=120, classes=3)
    zeros = {name: np.zeros(plan.length, dtype=np.uint64) for name in plan.members}
    play = Play(plan, zeros).advertise().share().mask()
    statistics = []
    for data in play.masked.values():
        _, message = open_message(plan, data, play.roster)
        assert isinstance(message, MaskedInput)
        seen = np.bincount(message.vector.view(np.uint8), minlength=256)
        mean = 8 * plan.length / 256
        statistics.append(float(((seen - mean) ** 2 / mean).sum()))
    # 255 degrees of freedom: mean 255, deviation 22.6; the band is nine deviations wide.
    assert all(50 < value < 460 for value in statistics)
    plain = np.bincount(zeros["member-0"].view(np.uint8), minlength=256)
    assert float(((plain - mean) ** 2 / mean).sum()) > 1e6


def test_the_pairwise_masks_alone_do_not_open_an_input_that_came_too_late() -> None:
    """Bonawitz section 4.0.3: dropped at step 3, unmasked, and then its input arrives."""
    plan = plan_of(4, 3)
    inputs = random_inputs(plan, 2)
    play = Play(plan, inputs).advertise().share().mask()
    late = play.masked.pop("member-3")
    play.confirm().reveal()
    found = play.aggregate()
    assert np.array_equal(found.vector, plain_sum(plan, inputs, found.survivors))
    _, message = open_message(plan, late, play.roster)
    assert isinstance(message, MaskedInput)
    # The server may now take off every pairwise mask of the late input; the self mask stays.
    from workers.secure_sum.keys import mask_key
    from workers.secure_sum.vector import add_mask, pair_key, pair_sign

    member, opened = play.members["member-3"], message.vector.copy()
    own = mask_key(play.seeds["member-3"].mask_seed, plan, "member-3")
    for peer, theirs in member.peers.items():
        if peer != "member-3":
            key = pair_key(plan, own, "member-3", peer, theirs.mask)
            add_mask(opened, key, -pair_sign("member-3", peer))
    assert not (opened == inputs["member-3"]).any()


def test_rounds_of_the_same_inputs_share_no_mask() -> None:
    plan = plan_of(2, 2)
    inputs = random_inputs(plan, 3)
    first, second = (Play(plan, inputs).advertise().share().mask() for _ in range(2))
    a, b = (
        open_message(plan, play.masked["member-0"], play.roster)[1] for play in (first, second)
    )
    assert isinstance(a, MaskedInput)
    assert isinstance(b, MaskedInput)
    assert not (a.vector == b.vector).any()
