"""The check of untouched shards: every difference outside the named ones is found."""

from dataclasses import replace
from typing import Any

import pytest

from workers.judge.refitted import ShardsClaim, check_untouched

BEFORE = [(f"{place}" * 64, "a" * 64) for place in range(4)]
AFTER = [*BEFORE[:2], ("f" * 64, "b" * 64), BEFORE[3]]
CLAIM = ShardsClaim([2], BEFORE, AFTER)


def test_only_the_named_shard_differs() -> None:
    found = check_untouched(CLAIM).check
    assert found.passed
    assert found.value.startswith("3 of 4, sha256 ")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"after": [("f" * 64, "a" * 64), *AFTER[1:]]}, "shard 0 differs"),
        ({"after": [(BEFORE[0][0], "b" * 64), *AFTER[1:]]}, "shard 0 differs"),
        ({"named": [1]}, "shard 2 differs"),
        ({"named": [2, 4]}, "none of the model's"),
        ({"named": [2, 2]}, "none of the model's"),
        ({"named": [3, 2]}, "none of the model's"),
        ({"after": AFTER[:3]}, "none of the model's"),
    ],
)
def test_what_differs_is_refuted(changes: dict[str, Any], words: str) -> None:
    found = check_untouched(replace(CLAIM, **changes)).check
    assert not found.passed
    assert words in found.value
