"""The retained set: chains of updates, and every claim judged as by the definition."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lethe.certificates.tree_oracle import bare_root as mth
from workers.judge.base import RetainedSetClaim, UpdateClaim
from workers.judge.checks import check_retained_set


def leaf(number: int) -> bytes:
    return hashlib.sha256(bytes([number])).digest()


def a_set(*numbers: int) -> list[bytes]:
    return sorted(leaf(number) for number in numbers)


# Of ten records 0 and 1 were removed first, then 2 (the judged link), then 3 and 4.
UPDATE = UpdateClaim(
    earlier=[leaf(1), leaf(0)],
    later=[leaf(3), leaf(4)],
    before_root=mth(a_set(*range(10))),
    before_count=10,
    after_root=mth(a_set(*range(5, 10))),
    after_count=5,
)
LINK = RetainedSetClaim(
    before=a_set(*range(2, 10)),
    after=a_set(*range(3, 10)),
    erased=[leaf(2)],
    before_root=mth(a_set(*range(2, 10))),
    before_count=8,
    after_root=mth(a_set(*range(3, 10))),
    after_count=7,
    update=UPDATE,
)


def test_a_link_of_an_update_passes_with_the_rows_of_its_end() -> None:
    assert check_retained_set(LINK, 5).check.passed
    # Alone, it would need its own rows.
    alone = replace(LINK, update=None)
    assert check_retained_set(alone, 7).check.passed
    assert not check_retained_set(alone, 5).check.passed


@pytest.mark.parametrize(
    ("changes", "rows", "reason"),
    [
        ({}, 7, "7 rows are stored for 5"),
        ({"later": [leaf(3)]}, 6, "count"),
        ({"later": [leaf(3), leaf(4), leaf(4)]}, 5, "twice"),
        ({"later": [leaf(3), leaf(0)]}, 5, "twice"),
        ({"later": [leaf(3), leaf(2)]}, 5, "not in after"),
        ({"later": [leaf(3), leaf(99)]}, 5, "not in after"),
        ({"later": [leaf(3), leaf(5)]}, 5, "does not end at"),
        ({"later": [leaf(3), leaf(4), leaf(5)], "after_count": 4}, 4, "does not end at"),
        ({"earlier": [leaf(0)]}, 5, "count"),
        ({"earlier": [leaf(0), leaf(2)]}, 5, "still in before"),
        ({"earlier": [leaf(0), leaf(99)]}, 5, "does not begin at"),
        ({"earlier": [leaf(0), b"short"]}, 5, "not 32 bytes"),
        ({"before_root": bytes(32)}, 5, "does not begin at"),
        ({"after_root": bytes(32)}, 5, "does not end at"),
        ({"after_root": LINK.after_root}, 5, "does not end at"),
        ({"before_count": 9}, 5, "count"),
    ],
)
def test_a_chain_that_does_not_hold_fails(
    changes: dict[str, Any], rows: int, reason: str
) -> None:
    judgement = check_retained_set(replace(LINK, update=replace(UPDATE, **changes)), rows)
    assert not judgement.check.passed
    assert reason in judgement.check.value


def test_the_link_itself_is_judged_as_ever() -> None:
    assert (
        "root of after"
        in check_retained_set(replace(LINK, after_root=UPDATE.after_root), 5).check.value
    )


def plainly(claim: RetainedSetClaim, rows: int) -> str | None:
    """Every rule in order, one at a time, with new sets and trees by definition."""
    before, after, erased = set(claim.before), set(claim.after), set(claim.erased)

    def malformed(name: str, leaves: Sequence[bytes]) -> list[tuple[bool, str]]:
        odd = any(not isinstance(one, bytes) or len(one) != 32 for one in leaves)
        unsorted = list(leaves) != sorted(set(leaves))
        return [
            (odd, f"a commitment in {name} is not 32 bytes"),
            (unsorted, f"{name} is not sorted without duplicates"),
        ]

    rules = [
        *malformed("before", claim.before),
        (not erased, "no erased record is named"),
        (len(erased) < len(claim.erased), "an erased record is named twice"),
        (bool(erased - before), "an erased record was not in before"),
        *malformed("after", claim.after),
        (bool(erased & after), "an erased record is still in after"),
        (before - erased != after, "before without the erased records is not after"),
        (len(before) != claim.before_count, "a published count is wrong"),
        (len(after) != claim.after_count, "a published count is wrong"),
    ]
    roots = [
        (mth(sorted(before)) != claim.before_root, "the published root of before is wrong"),
        (mth(sorted(after)) != claim.after_root, "the published root of after is wrong"),
    ]
    last = after
    if (update := claim.update) is not None:
        added, earlier, later = set(update.added), set(update.earlier), set(update.later)
        others = [*update.earlier, *update.later]
        first, last = (before | earlier) - added, after - later
        sizes = update.before_count, update.after_count
        rules += [
            (any(len(one) != 32 for one in added), "that the round added is not 32 bytes"),
            (len(added) < len(update.added), "the round added a record twice"),
            (bool(added - before - earlier), "is not in the set that it grew to"),
            (any(len(one) != 32 for one in others), "of another request is not 32 bytes"),
            (len({*others}) < len(others), "a record is erased twice in one update"),
            (bool(earlier & before), "erased earlier in the update is still in before"),
            (bool(later - after), "erased later in the update is not in after"),
        ]
        # Only well-formed lists have trees.
        roots += [
            ((len(first), len(last)) != sizes, "before and after the update is wrong"),
            (mth(sorted(first)) != update.before_root, "does not begin at the version before"),
            (mth(sorted(last)) != update.after_root, "does not end at the version after"),
        ]
    ends = [(rows != len(last), f"{rows} rows are stored for {len(last)} retained")]
    return next((reason for broken, reason in [*rules, *roots, *ends] if broken), None)


def true_claim(draw: st.DrawFn) -> tuple[RetainedSetClaim, int]:
    """Records 0 … n - 1, each retained, erased, or removed or added with the rest."""
    kinds = draw(st.lists(st.integers(0, 5), min_size=1, max_size=14))
    kinds[0] = 1  # at least one is erased
    of = [[leaf(i) for i, kind in enumerate(kinds) if kind == one] for one in range(6)]
    stays, erased, earlier, later, added, short = of
    end = sorted(stays + added + short)
    after = sorted([*end, *later])
    before = sorted([*after, *erased])
    start = sorted({*before, *earlier} - {*added})
    ends = mth(start), len(start), mth(end), len(end)
    update = UpdateClaim(earlier, later, *ends, added)
    roots = mth(before), len(before), mth(after), len(after)
    chained = bool(earlier or later or added) or draw(st.booleans())
    claim = RetainedSetClaim(before, after, erased, *roots, update if chained else None)
    return claim, len(end)


@st.composite
def claims(draw: st.DrawFn, spoiled: bool) -> tuple[RetainedSetClaim, int]:
    claim, rows = true_claim(draw)
    for _ in range(draw(st.integers(1, 2)) if spoiled else 0):
        fields = [name for name in vars_of(claim) if name != "update"]
        update = claim.update
        chosen = draw(st.sampled_from([*fields, "rows", *(vars_of(update) if update else [])]))
        if chosen == "rows":
            rows += draw(st.sampled_from([-1, 1]))
        elif chosen in fields and (chosen not in vars_of(UPDATE) or draw(st.booleans())):
            claim = replace(claim, **{chosen: spoil(draw, getattr(claim, chosen))})
        elif update is not None:
            spoilt = spoil(draw, getattr(update, chosen))
            claim = replace(claim, update=replace(update, **{chosen: spoilt}))
    return claim, rows


def vars_of(claim: Any) -> list[str]:
    return list(claim.__slots__)


def spoil(draw: st.DrawFn, value: Any) -> Any:
    """One record added, removed, doubled, truncated or misplaced; another root or count."""
    if isinstance(value, int):
        return value + draw(st.sampled_from([-1, 1]))
    if isinstance(value, bytes):
        return bytes(32)
    place = draw(st.integers(0, len(value)))
    one = draw(st.sampled_from([*value, leaf(draw(st.integers(0, 16))), b"short"]))
    found = [*value[:place], one, *value[place + draw(st.integers(0, 1)) :]]
    if draw(st.booleans()):
        found = value[:place] + value[place + 1 :]
    return sorted(found) if draw(st.booleans()) else found


@settings(max_examples=30, deadline=None)
@given(claims(spoiled=False))
def test_random_true_claims_pass(drawn: tuple[RetainedSetClaim, int]) -> None:
    claim, rows = drawn
    check = check_retained_set(claim, rows).check
    erased = len(claim.erased)
    assert check.passed
    assert check.value == f"{len(claim.before)} - {erased} = {len(claim.after)} records"


@settings(max_examples=120, deadline=None)
@given(claims(spoiled=True))
def test_random_spoiled_claims_are_judged_as_by_the_plain_rules(
    drawn: tuple[RetainedSetClaim, int],
) -> None:
    claim, rows = drawn
    expected, check = plainly(claim, rows), check_retained_set(claim, rows).check
    assert check.passed == (expected is None)
    assert (expected or "records") in check.value
