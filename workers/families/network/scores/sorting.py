"""The check that a silo grouped and labelled its scored rows as they are committed to.

A silo that reports a training row as held out feeds the attacks non-members that are members,
and an unchanged model looks as if it had forgotten. Whether a row is held out follows from the
record's id, and the judge knows the ids: each scored row must open to its digest, which the
version commits to, with the record, the group and the label that the silo reports.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lethe.certificates.evidence import Removal, record_commitment
from workers.families.network.config import NetworkConfig
from workers.families.network.data.rows import label_bytes, row_digest
from workers.silos.collect import SiloAnswers
from workers.silos.score_task import ScoreTask
from workers.silos.scores import ClientScores

# This says nothing about the model, so it refutes none, and no test runs on such rows.
MISSORTED = "rows in another group, or with another label, than committed to"


@dataclass(frozen=True, slots=True)
class Known:
    """A record that opens a commitment."""

    record: str
    salt: bytes
    held: bool


class Sorting:
    """What the judge knows of a model's records: the stored and the erased ones."""

    def __init__(
        self, config: NetworkConfig, salted: Mapping[str, bytes], removal: Removal
    ) -> None:
        def known(record: str, salt: bytes) -> Known:
            return Known(record, salt, config.is_held_out(record))

        self._stored = {record_commitment(s, r): known(r, s) for r, s in salted.items()}
        self._gone = {one.commitment: known(one.record, one.salt) for one in removal.records}

    def leave_out(self, found: SiloAnswers, tasks: Iterable[ScoreTask]) -> None:
        """Discard the answers of silos that grouped rows otherwise, as if malformed."""
        for task in tasks:
            scores = found.scores.get(task.silo)
            if scores is not None and not all(self._fits(c, task) for c in scores.clients):
                del found.scores[task.silo], found.signed_by[task.silo]
                found.faults[task.silo] = MISSORTED

    def _fits(self, client: ClientScores, task: ScoreTask) -> bool:
        if not self._gone.keys() >= set(client.own):
            return False  # rows of another request do not belong to this one
        trained, left = len(client.training), len(client.forget)
        # A record that is unknown, or erased yet stored, is refuted by another check.
        training = [self._stored.get(one) for one in client.commitments[:trained]]
        held = [self._stored.get(one) for one in client.commitments[trained:]]
        own = [self._gone.get(one) for one in client.own]
        sampled = [
            known
            for known, one in zip(training, client.commitments, strict=False)
            if task.is_sampled(one)
        ]
        groups = {"held": held, "forget": own[:left], "unseen": own[left:], "sample": sampled}
        # A training row outside of the sample has no score: only its group can be checked.
        return all(known is None or not known.held for known in training) and all(
            _opens(client, task, group, records) for group, records in groups.items()
        )


def _opens(
    client: ClientScores, task: ScoreTask, group: str, records: Sequence[Known | None]
) -> bool:
    """Return whether records belong to a group, and open the digests of its scored rows."""
    held = group in ("held", "unseen")
    if any(known is not None and known.held != held for known in records):
        return False
    scored = client.rows_of(group)
    rows = zip(
        client.asked(group, task),
        records,
        client.inputs[scored],
        client.labels[scored].tolist(),
        strict=False,  # masks have no scores
    )
    return all(
        known is None
        or digest == row_digest(inputs, known.record, known.salt, label_bytes(label), held=held)
        for digest, known, inputs, label in rows
    )
