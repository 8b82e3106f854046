"""A silo's scores of two models, with labels, counts and salted digests: no rows, no names.

A client is only a position in the answer. It can be identified only with its records' salts,
which stay in the database.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.arrays import Labels, Matrix, decode_tensors, encode_tensors
from workers.errors import ArtifactError
from workers.silos.canary_scores import ClientCanary, canary_arrays, read_canaries
from workers.silos.score_task import ScoreTask
from workers.training.fedavg.errors import MessageError

KIND = "silo-scores/2"
GROUPS = ("training", "held", "forget", "unseen", "other")
SCORED = ("held", "forget", "unseen", "sample")
Digests = tuple[bytes, ...]  # 32 bytes each


@dataclass(frozen=True, slots=True, eq=False)
class ClientScores:
    """One client's scores, each row named by its salted digest.

    training and held: the stored rows, trained on or held out; commitments: of their records,
    in that order. forget, unseen, other: the erased rows, trained on, held out, or erased for
    another request; own: commitments of the records of the first two. labels (n,) int64 and
    the logits before and after (n, classes) float64 are of the held, forget and unseen rows
    and of the sampled training rows, in that order, as are inputs, which open their digests;
    empty if the network is not a classifier. canary: set if one is registered.
    """

    training: Digests
    held: Digests
    forget: Digests
    unseen: Digests
    other: Digests
    own: Digests
    commitments: Digests
    inputs: Digests
    labels: Labels
    before: Matrix
    after: Matrix
    canary: ClientCanary | None = None

    def rows_of(self, group: str) -> slice:
        """Return the slice of the scored rows that belongs to a group of SCORED."""
        ends = [0]
        for name in SCORED[:-1]:
            ends.append(ends[-1] + len(getattr(self, name)))
        ends.append(max(ends[-1], len(self.labels)))
        place = SCORED.index(group)
        return slice(ends[place], ends[place + 1])

    def digests(self) -> Digests:
        """Return all rows' digests in the order of GROUPS."""
        return self.training + self.held + self.forget + self.unseen + self.other

    def asked(self, group: str, task: ScoreTask) -> Digests:
        """Return the digests of a group's rows that a task wants scored."""
        if group != "sample":
            found: Digests = getattr(self, group)
            return found
        # Commitments begin with those of the training rows, in the same order.
        return tuple(
            digest
            for digest, commitment in zip(self.training, self.commitments, strict=False)
            if task.is_sampled(commitment)
        )

    def scored(self, task: ScoreTask) -> int:
        """Return the number of rows that a task wants scored."""
        return sum(len(self.asked(group, task)) for group in SCORED)


@dataclass(frozen=True, slots=True, eq=False)
class SiloScores:
    """A silo's answer. models: hex SHA-256 of the model files it scored with."""

    models: tuple[str, str]
    clients: Sequence[ClientScores]


def encode_scores(task_digest: str, scores: SiloScores, classes: int) -> bytes:
    """Return the message that answers the task of a hex SHA-256."""
    clients = scores.clients
    arrays: dict[str, NDArray[Any]] = {
        "counts": np.array(
            [[len(getattr(one, group)) for group in GROUPS] for one in clients], dtype=np.int64
        ).reshape(-1, len(GROUPS)),
        "scored": np.array([len(one.labels) for one in clients], dtype=np.int64),
        "digests": _packed([digest for one in clients for digest in one.digests()]),
        "commitments": _packed([each for one in clients for each in one.commitments]),
        "inputs": _packed([each for one in clients for each in one.inputs]),
        "own": _packed([each for one in clients for each in one.own]),
        "labels": np.concatenate([np.zeros(0, np.int64), *(one.labels for one in clients)]),
    }
    for name in ("before", "after"):
        parts = [getattr(one, name) for one in clients]
        arrays[name] = np.concatenate([np.zeros((0, classes)), *parts])
    arrays |= canary_arrays([one.canary for one in clients], classes)
    metadata = {"kind": KIND, "models": list(scores.models), "task": task_digest}
    return encode_tensors(arrays, metadata)


def decode_scores(
    data: bytes,
    task_digest: str,
    task: ScoreTask,
    classes: int,
    *,
    classifies: bool,
    stamps: bool = False,
) -> SiloScores:
    """Return the answer to a task.

    Raises MessageError for bytes that `encode_scores` would not write, an answer to another
    task or with another published file, scores for fewer or more rows than requested, and
    invalid labels or scores. stamps: whether there is a canary to stamp rows with. The
    earlier model may differ from the one published: the judge checks that.
    """
    try:
        arrays, metadata = decode_tensors(data)
        scores = _read(arrays, metadata)
        fits = scores.models[1] == task.models[1] and all(
            len(one.labels) == (one.scored(task) if classifies else 0) for one in scores.clients
        )
        fits = fits and all(_plausible(one, classes, stamps) for one in scores.clients)
        if fits and encode_scores(task_digest, scores, classes) == data:
            return scores
    except (ArtifactError, AttributeError, LookupError, TypeError, ValueError):
        pass  # raised below, as for bytes that parse and differ
    raise MessageError("these bytes are no answer to this question: have the silo asked again")


def _plausible(one: ClientScores, classes: int, stamps: bool) -> bool:
    """Return whether labels and scores are valid: otherwise a liar could refute the model."""
    named = ((one.labels >= 0) & (one.labels < classes)).all()
    finite = bool(np.isfinite(one.before).all() and np.isfinite(one.after).all())
    if one.canary is None:
        return bool(named and finite and not stamps)
    rows = len(one.held) + len(one.unseen)
    return bool(named and finite and stamps and one.canary.is_plausible(rows))


def _read(arrays: dict[str, NDArray[Any]], metadata: dict[str, Any]) -> SiloScores:
    before, after = metadata["models"]
    if {type(before), type(after)} != {str}:
        raise ValueError("models")
    if [arrays[name].dtype.kind for name in ("labels", "before", "after")] != ["i", "f", "f"]:
        raise ValueError("types")
    digests, commitments, inputs, owned = (
        _unpacked(arrays[name]) for name in ("digests", "commitments", "inputs", "own")
    )
    counts, scored = arrays["counts"].tolist(), arrays["scored"].tolist()
    stamped = [held + unseen for _, held, _, unseen, _ in counts]
    canaries = read_canaries(arrays, stamped)
    clients, first, stored, removed, row = [], 0, 0, 0, 0
    for numbers, rows, canary in zip(counts, scored, canaries, strict=True):
        if min(*numbers, rows) < 0:
            raise ValueError("counts")
        groups: dict[str, Digests] = {}
        for group, number in zip(GROUPS, numbers, strict=True):
            groups[group] = digests[first : first + number]
            first += number
        kept = numbers[0] + numbers[1]
        left = numbers[2] + numbers[3]
        own = slice(row, row + rows)
        clients.append(
            ClientScores(
                **groups,
                own=owned[removed : removed + left],
                commitments=commitments[stored : stored + kept],
                inputs=inputs[own],
                labels=arrays["labels"][own],
                before=arrays["before"][own],
                after=arrays["after"][own],
                canary=canary,
            )
        )
        stored, removed, row = stored + kept, removed + left, row + rows
    scores = {len(arrays[name]) for name in ("labels", "before", "after", "inputs")}
    lengths = len(digests), len(commitments), len(owned), scores
    if lengths != (first, stored, removed, {row}):
        raise ValueError("lengths")
    return SiloScores((before, after), clients)


def _packed(digests: Sequence[bytes]) -> NDArray[np.int64]:
    """Return digests of 32 bytes as (n, 4) int64, which a tensor file holds."""
    return np.frombuffer(b"".join(digests), "<i8").astype(np.int64).reshape(-1, 4)


def _unpacked(packed: NDArray[Any]) -> Digests:
    return tuple(row.tobytes() for row in packed.astype("<i8"))
