"""A silo's canary answer: it round-trips, and nothing else is read."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.workers.silos import questions
from workers.arrays import decode_tensors, encode_tensors
from workers.silos.canary_scores import ClientCanary
from workers.silos.score_task import encode_task
from workers.silos.scores import SiloScores, decode_scores, encode_scores
from workers.training.fedavg.errors import MessageError

TASK = replace(questions.question("a job", 7), silo=1)
DIGEST = hashlib.sha256(encode_task(TASK)).hexdigest()
BARE = questions.answer(TASK)


def said(number: int) -> ClientCanary:
    """Return the answer of a client with one held-out and one unseen row."""
    rng = np.random.default_rng(number)
    logits = rng.normal(size=(2, 2, questions.CLASSES))
    return ClientCanary(logits[0], logits[1], leaving=number, staying=10 * number)


GOOD = replace(
    BARE, clients=[replace(one, canary=said(n)) for n, one in enumerate(BARE.clients, 1)]
)
ANSWER = encode_scores(DIGEST, GOOD, questions.CLASSES)


def decode(data: bytes, *, stamps: bool = True) -> SiloScores:
    return decode_scores(data, DIGEST, TASK, questions.CLASSES, classifies=True, stamps=stamps)


def test_each_client_gets_back_what_it_said() -> None:
    found = decode(ANSWER)
    assert len(found.clients) == 2
    for one, two in zip(found.clients, GOOD.clients, strict=True):
        assert one.canary is not None
        assert two.canary is not None
        assert (one.canary.leaving, one.canary.staying) == (
            two.canary.leaving,
            two.canary.staying,
        )
        assert one.canary.before.tobytes() == two.canary.before.tobytes()
        assert one.canary.after.tobytes() == two.canary.after.tobytes()


def test_a_silo_without_clients_has_nothing_to_say() -> None:
    nobody = SiloScores(questions.MODELS, [])
    assert decode(encode_scores(DIGEST, nobody, questions.CLASSES)).clients == []


def test_it_is_said_if_it_is_asked_for_and_only_then() -> None:
    with pytest.raises(MessageError):
        decode(encode_scores(DIGEST, BARE, questions.CLASSES))
    with pytest.raises(MessageError):
        decode(ANSWER, stamps=False)


def spoilt(change: Callable[[dict[str, Any]], Any]) -> bytes:
    arrays, words = decode_tensors(ANSWER)
    change(arrays)
    return encode_tensors(arrays, words)


SPOILT: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a row less": lambda a: a.update(canary_after=a["canary_after"][1:]),
    "a row more": lambda a: a.update(
        {f"canary_{s}": np.concatenate([a[f"canary_{s}"]] * 2) for s in ("before", "after")}
    ),
    "one model": lambda a: a.pop("canary_after"),
    "no number": lambda a: a.update(canary_before=np.full_like(a["canary_before"], np.nan)),
    "another width": lambda a: a.update(canary_before=a["canary_before"][:, :2]),
    "half the bits": lambda a: a.update(canary_before=a["canary_before"].astype(np.float32)),
    "counts of one client": lambda a: a.update(canary_planted=a["canary_planted"][:1]),
    "fewer than none": lambda a: a.update(canary_planted=-a["canary_planted"]),
    "fractions": lambda a: a.update(canary_planted=a["canary_planted"] / 2),
    "no shape": lambda a: a.update(canary_planted=np.array(3)),
    "no pair": lambda a: a.update(canary_planted=a["canary_planted"][:, :1]),
}


@pytest.mark.parametrize("name", SPOILT)
def test_another_answer_is_refused(name: str) -> None:
    with pytest.raises(MessageError):
        decode(spoilt(SPOILT[name]))
