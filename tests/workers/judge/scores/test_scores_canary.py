"""The canary in a scores file: all of it is read back, in the order of the pool."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.workers.judge.empirical_claims import committed
from tests.workers.judge.samples.canary_claims import HONEST, TARGET, with_canary
from workers.arrays import decode_tensors, encode_tensors
from workers.errors import ArtifactError
from workers.judge.samples.canary import CanaryClaim
from workers.judge.samples.empirical import VERIFIER
from workers.judge.scores.file import decode_scores, encode_scores

ROWS = committed(HONEST)
FILE = encode_scores(with_canary(0.9, 0.05), ROWS)


@pytest.mark.parametrize(("after", "result"), [(0.05, "PASS"), (0.9, "FAIL")])
def test_the_verdict_is_reached_again_to_the_last_digit(after: float, result: str) -> None:
    data = encode_scores(with_canary(0.9, after, staying=0), ROWS)
    claim, rows = decode_scores(data)
    first = VERIFIER.verify(claim)
    assert first.result == result
    again, _ = decode_scores(encode_scores(claim, rows))
    assert VERIFIER.verify(again) == first
    assert encode_scores(again, rows) == data


def test_each_stamped_row_stays_with_its_row_of_the_pool() -> None:
    """Each row of logits contains the number of its row in the pool, whatever the order."""
    honest, stamped = with_canary(0.9, 0.05), HONEST.pool_labels != TARGET
    mark = np.repeat(np.arange(600.0)[stamped][:, None], 5, axis=1)
    canary = CanaryClaim(TARGET, mark, -mark, leaving=3, staying=2)
    claim, rows = decode_scores(encode_scores(replace(honest, canary=canary), ROWS))
    found = claim.canary
    assert found is not None
    assert (found.target, found.leaving, found.staying) == (TARGET, 3, 2)
    kept = [row for row, label in zip(rows.pool, claim.pool_labels, strict=True) if label != 1]
    assert [ROWS.pool[int(number)] for number in found.before[:, 0]] == kept
    assert np.array_equal(found.after, -found.before)
    assert found.before[:, 0].tolist() != mark[:, 0].tolist()


def test_files_without_a_canary_have_nothing_of_it() -> None:
    data = encode_scores(HONEST, ROWS)
    assert b"canary_before" not in data
    assert decode_scores(data)[0].canary is None
    assert b"canary_before" in FILE


def spoilt(change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> bytes:
    arrays, said = decode_tensors(FILE)
    change(arrays, said)
    return encode_tensors(arrays, said)


SPOILT: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "no member": lambda a, m: m.pop("canary"),
    "no logits": lambda a, m: a.pop("canary_after"),
    "a row less": lambda a, m: a.update(canary_before=a["canary_before"][1:]),
    "another target": lambda a, m: m["canary"].update(target=2),
    "no target": lambda a, m: m["canary"].pop("target"),
    "a target that is a truth": lambda a, m: m["canary"].update(target=True),
    "fewer than no rows": lambda a, m: m["canary"].update(leaving=-1),
    "a word more": lambda a, m: m["canary"].update(more=1),
    "null": lambda a, m: m.update(canary=None),
}


@pytest.mark.parametrize("name", SPOILT)
def test_other_spellings_are_refused(name: str) -> None:
    with pytest.raises(ArtifactError, match="no scores file"):
        decode_scores(spoilt(SPOILT[name]))
