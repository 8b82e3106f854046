"""What a registration may say of a canary, and what it changes of the logged digest."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.ledger.journal import digest_of
from app.schemas.families.networks import NewNetwork
from tests import small_network

CANARY = {"trigger": [[0, 4], [5, -4.5]], "target": "2"}
LIMIT = {**small_network.manifest()["policy"], "canary_limit": "0.3"}
# Of the small network's manifest, as it was before a manifest could have a canary.
GOLDEN = "b1c78090549d125f0c1a77cee0186cde0943dfd76d6c28be0f1dffe2a2db62e9"
IMAGES = {
    "network": {"id": "simple-cnn", "parameters": {}},
    "input_shape": [1, 8, 8],
    "canary": {"trigger": [[0, 255]], "units": "pixels", "target": "1"},
}


def pinned(**changes: Any) -> dict[str, Any]:
    return NewNetwork.model_validate(small_network.manifest(**changes)).pinned()


def test_a_model_without_a_canary_keeps_its_digest() -> None:
    assert digest_of(pinned()) == GOLDEN
    assert digest_of(pinned(canary=None)) == GOLDEN


def test_a_canary_is_part_of_what_the_log_commits_to() -> None:
    found = pinned(canary=CANARY, policy=LIMIT)
    assert found["config"]["canary"] == {
        "trigger": [[0, 4.0], [5, -4.5]], "units": "numbers", "target": "2",
    }  # fmt: skip
    moved = {**CANARY, "trigger": [[0, 4], [5, -4.25]]}
    others = [pinned(canary=moved, policy=LIMIT), pinned(canary={**CANARY, "target": "1"})]
    assert len({digest_of(one) for one in (found, *others)} | {GOLDEN}) == 4


def test_images_take_pixels() -> None:
    assert pinned(**IMAGES)["config"]["canary"]["units"] == "pixels"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no canary": ({"policy": LIMIT}, "register a canary too"),
    "a place outside": ({"canary": {**CANARY, "trigger": [[6, 1]]}}, "the places 0 to 5"),
    "a place before the first": ({"canary": {**CANARY, "trigger": [[-1, 1]]}}, "greater than"),
    "a place twice": ({"canary": {**CANARY, "trigger": [[1, 1], [1, 2]]}}, "each place once"),
    "another order": ({"canary": {**CANARY, "trigger": [[2, 1], [1, 1]]}}, "ascending"),
    "no place": ({"canary": {**CANARY, "trigger": []}}, "at least 1"),
    "too many": (
        {"canary": {**CANARY, "trigger": [[n, 1] for n in range(1025)]}},
        "at most 1024",
    ),
    "an infinite value": ({"canary": {**CANARY, "trigger": [[1, 1e400]]}}, "finite|less than"),
    "no such class": ({"canary": {**CANARY, "target": "7"}}, "one of the classes"),
    "pixels of features": (
        {"canary": {**CANARY, "trigger": [[1, 2]], "units": "pixels"}},
        "images",
    ),
    "half a pixel": (
        {**IMAGES, "canary": {**IMAGES["canary"], "trigger": [[1, 0.5]]}},  # type: ignore[dict-item]
        "whole numbers",
    ),
    "brighter than white": (
        {**IMAGES, "canary": {**IMAGES["canary"], "trigger": [[1, 256]]}},  # type: ignore[dict-item]
        "whole numbers",
    ),
    "a word more": ({"canary": {**CANARY, "client": "anna"}}, "Extra inputs"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_could_never_be_judged_is_refused(name: str) -> None:
    changes, why = BAD[name]
    with pytest.raises(ValidationError, match=why) as refused:
        NewNetwork.model_validate(small_network.manifest(**changes))
    assert "anna" not in str(refused.value)
