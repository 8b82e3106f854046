"""A judge's question to two silos, and answers that need no rows."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from workers.silos.score_task import EVERYBODY, ScoreTask
from workers.silos.scores import ClientScores, SiloScores

CLASSES = 3
MODELS = ("aa" * 32, "bb" * 32)


def question(job_id: str, model_id: int, silo: int = 0) -> ScoreTask:
    """Return the question to one of two silos: all training rows are in the sample."""
    return ScoreTask(
        job_id=job_id,
        model_id=model_id,
        silo=silo,
        silos=2,
        before="the file before",
        published="the file after",
        models=MODELS,
        own=("0c" * 32,),
        seed="5e" * 32,
        limit=EVERYBODY,
        nonce="00" * 16,
    )


def digests(name: str, count: int) -> tuple[bytes, ...]:
    """Return `count` digests, different for each name."""
    return tuple(hashlib.sha256(f"{name} {n}".encode()).digest() for n in range(count))


def client(name: str, counts: Sequence[int] = (2, 1, 2, 1, 1)) -> ClientScores:
    """Return a client's scores; counts: its training, held, forget, unseen and other rows."""
    training, held, forget, unseen, other = counts
    rows = held + forget + unseen + training
    rng = np.random.default_rng(sum(name.encode()))
    return ClientScores(
        training=digests(f"{name} training", training),
        held=digests(f"{name} held", held),
        forget=digests(f"{name} forget", forget),
        unseen=digests(f"{name} unseen", unseen),
        other=digests(f"{name} other", other),
        own=digests(f"{name} own", forget + unseen),
        commitments=digests(f"{name} commitment", training + held),
        inputs=digests(f"{name} inputs", rows),
        labels=rng.integers(CLASSES, size=rows),
        before=rng.normal(size=(rows, CLASSES)),
        after=rng.normal(size=(rows, CLASSES)),
    )


def answer(task: ScoreTask) -> SiloScores:
    """Return the answer of a task's silo."""
    names = ("anna", "cleo") if task.silo else ("bert",)
    return SiloScores(task.models, [client(name) for name in names])


def without_a_row(scores: SiloScores) -> SiloScores:
    """Return the answer with the last scored row of its first client left out."""
    first, *others = scores.clients
    short = replace(
        first,
        inputs=first.inputs[:-1],
        labels=first.labels[:-1],
        before=first.before[:-1],
        after=first.after[:-1],
    )
    return replace(scores, clients=[short, *others])


def same(left: SiloScores, right: SiloScores) -> bool:
    """Return whether two answers are equal in every bit."""
    return left.models == right.models and all(
        one.digests() == two.digests()
        and one.commitments == two.commitments
        and (one.own, one.inputs) == (two.own, two.inputs)
        and np.array_equal(one.labels, two.labels)
        and one.before.tobytes() == two.before.tobytes()
        and one.after.tobytes() == two.after.tobytes()
        for one, two in zip(left.clients, right.clients, strict=True)
    )
