"""A silo's questions and answers have one canonical form each; nothing else is read."""

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.workers.silos import questions
from workers.arrays import decode_tensors, encode_tensors
from workers.silos.score_task import (
    EVERYBODY,
    MOST_RETAINED,
    decode_task,
    encode_task,
    is_score_task,
    limit_of,
    rank,
)
from workers.silos.scores import SiloScores, decode_scores, encode_scores
from workers.training.fedavg.errors import MessageError

TASK = questions.question("a job", 7)
MESSAGE = encode_task(TASK)
DIGEST = hashlib.sha256(MESSAGE).hexdigest()
GOOD = questions.answer(replace(TASK, silo=1))
ANSWER = encode_scores(DIGEST, GOOD, questions.CLASSES)


def decode(data: bytes, classifies: bool = True) -> SiloScores:
    return decode_scores(data, DIGEST, TASK, questions.CLASSES, classifies=classifies)


def test_a_question_comes_back() -> None:
    assert is_score_task(MESSAGE)
    assert decode_task(MESSAGE) == TASK
    assert not is_score_task(b'{"kind":"silo-task/1","model":7,"positions":null}\n...')


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda data: b"",
    "cut short": lambda data: data[:-1],
    "another kind": lambda data: data.replace(b"score-task/1", b"score-task/2"),
    "a member more": lambda data: data.replace(b'{"before"', b'{"a":1,"before"'),
    "a member less": lambda data: data.replace(b'"silo":0,', b""),
    "a silo that is a word": lambda data: data.replace(b'"silo":0', b'"silo":"0"'),
    "a silo before the first": lambda data: data.replace(b'"silo":0', b'"silo":-1'),
    "a model that is a truth": lambda data: data.replace(b'"model_id":7', b'"model_id":true'),
    "a seed that is a number": lambda data: data.replace(b'"' + b"5e" * 32 + b'"', b"5"),
    "one model": lambda data: data.replace(b'","' + b"bb" * 32, b""),
    "spaces": lambda data: data.replace(b":", b": ", 1),
}


@pytest.mark.parametrize("name", SPOILT)
def test_another_question_is_refused(name: str) -> None:
    spoilt = SPOILT[name](MESSAGE)
    assert spoilt != MESSAGE
    with pytest.raises(MessageError):
        decode_task(spoilt)


def test_an_answer_comes_back() -> None:
    assert questions.same(decode(ANSWER), GOOD)
    nobody = SiloScores(questions.MODELS, [])
    assert questions.same(decode(encode_scores(DIGEST, nobody, 3)), nobody)


def test_no_name_and_no_record_is_in_it() -> None:
    assert b"anna" not in ANSWER
    assert b"cleo" not in ANSWER


def test_a_network_of_masks_has_digests_and_no_scores() -> None:
    (one, *_) = GOOD.clients
    bare = replace(
        one,
        inputs=(),
        labels=one.labels[:0],
        before=one.before[:0],
        after=one.after[:0],
    )
    data = encode_scores(DIGEST, replace(GOOD, clients=[bare]), questions.CLASSES)
    assert decode(data, classifies=False).clients[0].held == one.held
    with pytest.raises(MessageError):
        decode(data)
    with pytest.raises(MessageError):
        decode(ANSWER, classifies=False)


def spelled(**changes: object) -> bytes:
    """Return the answer with arrays, or words, in place of its own."""
    arrays, said = decode_tensors(ANSWER)
    words = {name: value for name, value in changes.items() if name in said}
    arrays |= {name: np.asarray(value) for name, value in changes.items() if name in arrays}
    return encode_tensors(arrays, {**said, **words})


ARRAYS = decode_tensors(ANSWER)[0]
BAD: dict[str, bytes] = {
    "nothing": b"",
    "cut short": ANSWER[:-1],
    "a byte more": ANSWER + b"\0",
    "to another question": spelled(task="00" * 32),
    "of another kind": spelled(kind="silo-scores/3"),
    "one model": spelled(models=["aa" * 32]),
    "by another published file": spelled(models=["aa" * 32, "cc" * 32]),
    "models that are numbers": spelled(models=[1, 2]),
    "a row short": encode_scores(DIGEST, questions.without_a_row(GOOD), questions.CLASSES),
    "a negative count": spelled(counts=ARRAYS["counts"] * np.int64(-1)),
    "counts of more clients": spelled(counts=np.concatenate([ARRAYS["counts"]] * 2)),
    "a digest more": spelled(digests=np.concatenate([ARRAYS["digests"]] * 2)),
    "a commitment less": spelled(commitments=ARRAYS["commitments"][:-1]),
    "a commitment of what went less": spelled(own=ARRAYS["own"][:-1]),
    "a digest of inputs less": spelled(inputs=ARRAYS["inputs"][:-1]),
    "labels that are fractions": spelled(labels=ARRAYS["labels"].astype(np.float64)),
    "labels in a square": spelled(labels=ARRAYS["labels"][:, None]),
    "scores of another width": spelled(before=ARRAYS["before"][:, :2]),
    "scores in half the bits": spelled(after=ARRAYS["after"].astype(np.float32)),
    "scores of one model less": spelled(after=ARRAYS["after"][:-1]),
    "a score that is no number": spelled(before=np.full_like(ARRAYS["before"], np.nan)),
    "an infinite score": spelled(after=np.full_like(ARRAYS["after"], np.inf)),
    "a label before the first": spelled(labels=np.full_like(ARRAYS["labels"], -1)),
    "a label after the last": spelled(labels=np.full_like(ARRAYS["labels"], 3)),
    **{f"{name} without a shape": spelled(**{name: 3}) for name in ("counts", "scored")},
    "labels without a shape": spelled(labels=np.array(3)),
    "scores without a shape": spelled(after=np.array(3.0)),
}


@pytest.mark.parametrize("name", BAD)
def test_another_answer_is_refused(name: str) -> None:
    assert BAD[name] != ANSWER
    with pytest.raises(MessageError):
        decode(BAD[name])


def test_the_sample_is_drawn_by_the_seed_and_has_its_size() -> None:
    seed, records = b"\x01" * 32, questions.digests("record", MOST_RETAINED + 500)
    few = replace(TASK, seed=seed.hex(), limit=limit_of(seed, records))
    chosen = [record for record in records if few.is_sampled(record)]
    assert len(chosen) == MOST_RETAINED
    assert set(chosen) == set(
        sorted(records, key=lambda record: rank(seed, record))[:MOST_RETAINED]
    )
    other = replace(few, seed="02" * 32, limit=limit_of(b"\x02" * 32, records))
    assert chosen != [record for record in records if other.is_sampled(record)]
    assert limit_of(seed, records[:MOST_RETAINED]) == EVERYBODY


def test_scores_are_asked_of_the_sampled_rows_alone() -> None:
    (one, *_) = GOOD.clients
    first, second = sorted(rank(bytes.fromhex(TASK.seed), c) for c in one.commitments[:2])
    ranks = {rank(bytes.fromhex(TASK.seed), c): n for n, c in enumerate(one.commitments[:2])}
    assert one.asked("sample", TASK) == one.training
    assert one.asked("sample", replace(TASK, limit=first)) == (one.training[ranks[first]],)
    assert one.asked("sample", replace(TASK, limit="0" * 64)) == ()
    assert first != second
