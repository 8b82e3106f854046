"""The judge's own Merkle root, against RFC 6962's recursive definition."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from workers.verifier.base import RetainedSetClaim, UpdateClaim
from workers.verifier.retained_set import check_retained_set, merkle_root

# The eight reference leaves of Certificate Transparency's own tests, and their root.
LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657"]
LEAVES += ["606162636465666768696a6b6c6d6e6f"]
ROOT = "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


def mth(leaves: list[bytes]) -> bytes:
    """RFC 6962 section 2.1, as written."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    return hashlib.sha256(b"\1" + mth(leaves[:split]) + mth(leaves[split:])).digest()


def test_the_known_answer() -> None:
    assert merkle_root([bytes.fromhex(leaf) for leaf in LEAVES]).hex() == ROOT


@pytest.mark.parametrize("size", [*range(20), 31, 32, 33, 100])
def test_equals_the_definition(size: int) -> None:
    leaves = [bytes([i]) * 32 for i in range(size)]
    assert merkle_root(leaves) == mth(leaves)


def leaf(number: int) -> bytes:
    return hashlib.sha256(bytes([number])).digest()


def a_set(*numbers: int) -> list[bytes]:
    return sorted(leaf(number) for number in numbers)


# Of ten records 0 and 1 went first, then 2 (the link that is judged), then 3 and 4.
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
