"""A judge's message to a silo: two models, one request, and the rows to score.

One line of canonical JSON, sealed like a round's task. It names no client and no record: the
records to forget are given as salted commitments.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from lethe import canonical
from lethe.errors import LetheError
from workers.training.fedavg.errors import MessageError

KIND = "silo-score-task/1"
MOST_RETAINED = 2000  # rows of a sample: it measures an accuracy to within two points
EVERYBODY = "f" * 64


@dataclass(frozen=True, slots=True)
class ScoreTask:
    """One judgement's question to one of `silos` silos, counted from 0.

    before and published: artifact ids of the model with the erased rows, and of the published
    model; models: their files' hex SHA-256. own: hex commitments of the records of the judged
    request, sorted. seed: hex, drawn for this judgement. limit: hex; a retained row is in the
    sample if its `rank` is at most that. nonce: hex, makes every question unique.
    """

    job_id: str
    model_id: int
    silo: int
    silos: int
    before: str
    published: str
    models: tuple[str, str]
    own: tuple[str, ...]
    seed: str
    limit: str
    nonce: str

    def is_sampled(self, commitment: bytes) -> bool:
        """Return whether a retained training row is in the sample."""
        return rank(bytes.fromhex(self.seed), commitment) <= self.limit


def rank(seed: bytes, commitment: bytes) -> str:
    """Return a record's rank in a random order fixed by the seed: hex SHA-256."""
    return hashlib.sha256(b"lethe/retained/v1\0" + seed + commitment).hexdigest()


def limit_of(seed: bytes, commitments: Iterable[bytes]) -> str:
    """Return the highest rank of a sample of MOST_RETAINED records, drawn by the seed."""
    ranks = sorted(rank(seed, one) for one in commitments)
    if len(ranks) <= MOST_RETAINED:
        return EVERYBODY
    return ranks[MOST_RETAINED - 1]


def encode_task(task: ScoreTask) -> bytes:
    """Return the message of a task."""
    said = {**asdict(task), "kind": KIND, "models": list(task.models), "own": list(task.own)}
    return canonical.encode(said)


def is_score_task(data: bytes) -> bool:
    """Return whether a silo's message asks for scores; others are round tasks."""
    return f'"kind":"{KIND}"'.encode() in data.partition(b"\n")[0]


def decode_task(data: bytes) -> ScoreTask:
    """Return the task of `encode_task`. Raises MessageError for any other bytes."""
    try:
        said = canonical.decode(data)
        del said["kind"]
        texts = [said[f.name] for f in fields(ScoreTask) if f.type is str]
        numbers = [said[name] for name in ("model_id", "silo", "silos")]
        models, own = tuple(said.pop("models")), tuple(said.pop("own"))
        task = ScoreTask(models=models, own=own, **said)
        typed = all(type(text) is str for text in (*texts, *models, *own))
        counted = all(type(number) is int and number >= 0 for number in numbers)
        if typed and counted and len(models) == 2 and encode_task(task) == data:
            return task
    except (LetheError, AttributeError, KeyError, TypeError):
        pass  # raised below, as for bytes that parse and differ
    raise MessageError("these bytes ask a silo for no scores: have them sent again")
