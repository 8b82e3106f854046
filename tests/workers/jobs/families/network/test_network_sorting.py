"""The judge's check of a silo's grouping, row by row, without the rows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, cast

import numpy as np
import pytest

from lethe.certificates.evidence import record_commitment
from tests.workers.silos import questions
from workers.families.network.config import NetworkConfig
from workers.families.network.data.rows import label_bytes, row_digest
from workers.families.network.scores.sorting import MISSORTED, Sorting
from workers.silos.collect import SiloAnswers
from workers.silos.score_task import ScoreTask, rank
from workers.silos.scores import ClientScores, SiloScores


class Config:
    """Records whose id begins with h are held out."""

    def is_held_out(self, record: str) -> bool:
        return record.startswith("h")


@dataclass
class Gone:
    """A record of the removal."""

    record: str
    salt: bytes
    commitment: bytes


@dataclass
class Removed:
    """A removal, of which only the records are read."""

    records: list[Gone]


def salt(record: str) -> bytes:
    return sha256(b"salt" + record.encode()).digest()


def commitment(record: str) -> bytes:
    return record_commitment(salt(record), record)


def inputs(record: str) -> bytes:
    return sha256(b"inputs" + record.encode()).digest()


def digest(record: str, label: int, *, held: bool) -> bytes:
    return row_digest(inputs(record), record, salt(record), label_bytes(label), held=held)


# The judge requests only one of the training rows.
FIRST, SECOND = sorted(
    ("t1", "t2"), key=lambda r: rank(bytes.fromhex("5e" * 32), commitment(r))
)
TASK = replace(
    questions.question("a job", 7), limit=rank(bytes.fromhex("5e" * 32), commitment(FIRST))
)
SCORED = ["h1", "t8", "h8", FIRST]  # in the order of the groups
HONEST = ClientScores(
    training=(digest(FIRST, 2, held=False), digest(SECOND, 0, held=False)),
    held=(digest("h1", 1, held=True),),
    forget=(digest("t8", 0, held=False),),
    unseen=(digest("h8", 2, held=True),),
    other=(bytes(32),),
    own=(commitment("t8"), commitment("h8")),
    commitments=(commitment(FIRST), commitment(SECOND), commitment("h1")),
    inputs=tuple(inputs(record) for record in SCORED),
    labels=np.array([1, 0, 2, 2]),
    before=np.zeros((4, 3)),
    after=np.zeros((4, 3)),
)


def judged(client: ClientScores, task: ScoreTask = TASK) -> SiloAnswers:
    stored = {record: salt(record) for record in ("t1", "t2", "h1")}
    gone = Removed([Gone(r, salt(r), commitment(r)) for r in ("t8", "h8")])
    sorting = Sorting(cast(NetworkConfig, Config()), stored, cast(Any, gone))
    scores = {task.silo: SiloScores(task.models, [HONEST, client])}
    found = SiloAnswers(scores, {}, {task.silo: "a key"})
    sorting.leave_out(found, [task, replace(task, silo=1)])
    return found


def test_an_honest_answer_counts() -> None:
    found = judged(HONEST)
    assert (set(found.scores), found.faults, found.signed_by) == ({0}, {}, {0: "a key"})


def test_records_that_nobody_knows_are_left_to_the_retained_set() -> None:
    for place in (1, 2):  # a score of the first was requested by its commitment
        commitments = list(HONEST.commitments)
        commitments[place] = bytes(32)
        assert not judged(replace(HONEST, commitments=tuple(commitments))).faults


LIES: dict[str, Callable[[], dict[str, Any]]] = {
    "a held-out record among those trained on, where no score is asked for": lambda: {
        "training": (*HONEST.training, *HONEST.held),
        "held": (),
        "inputs": HONEST.inputs[1:],
        **{name: getattr(HONEST, name)[1:] for name in ("labels", "before", "after")},
    },
    # The version commits to the flag itself: the training lied, too.
    "a training record flagged as held out": lambda: {
        "held": (digest(SECOND, 1, held=True),),
        "commitments": (commitment(FIRST), bytes(32), commitment(SECOND)),
        "inputs": (inputs(SECOND), *HONEST.inputs[1:]),
    },
    "a forgotten record flagged as held out": lambda: {
        "unseen": (digest("t8", 2, held=True),),
        "own": (commitment("t8"), commitment("t8")),
        "inputs": (*HONEST.inputs[:2], inputs("t8"), HONEST.inputs[3]),
    },
    "a record of another request": lambda: {"own": (commitment("t1"), commitment("h8"))},
    "a record's row under another record": lambda: {"own": (commitment("h8"),) * 2},
    **{
        f"another label of row {row}": lambda row=row: {  # type: ignore[misc]
            "labels": (HONEST.labels + (np.arange(4) == row)) % 3
        }
        for row in range(4)
    },
    **{
        f"other inputs of row {row}": lambda row=row: {  # type: ignore[misc]
            "inputs": (*HONEST.inputs[:row], bytes(32), *HONEST.inputs[row + 1 :])
        }
        for row in range(4)
    },
}


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_of_one_lie_does_not_count(lie: str) -> None:
    found = judged(replace(HONEST, **LIES[lie]()))
    assert (found.scores, found.faults, found.signed_by) == ({}, {0: MISSORTED}, {})


def test_of_masks_the_groups_are_seen_all_the_same() -> None:
    none = {"inputs": (), "labels": HONEST.labels[:0], "before": HONEST.before[:0]}
    bare = replace(HONEST, **none, after=HONEST.after[:0])  # type: ignore[arg-type]
    sorted_otherwise = replace(bare, commitments=bare.commitments[::-1])
    assert not judged(bare).faults
    assert judged(sorted_otherwise).faults
