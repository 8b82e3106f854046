"""Models that the judge of an approximate erasure trains itself, if the policy requires it.

These are reference models for LiRA and RMIA, and one model without the erased rows for
distances. The judge needs the rows for that, so with silos it trains nothing, and the verdict
stays open.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from time import perf_counter

import numpy as np
import torch

from models.database.types import clock as database_clock
from workers.errors import ModelError, RefusedError
from workers.families.network import progress
from workers.families.network.config import NetworkConfig
from workers.families.network.data import before as network_before
from workers.families.network.data.rows import assemble, holdings, row_digests
from workers.families.network.ladder import LATE, first_due, is_late
from workers.families.network.training import device_of
from workers.judge.inference.intervals import Vector, spent
from workers.judge.samples import samples
from workers.judge.samples.distances import parameter_gap
from workers.judge.samples.empirical_claim import EmpiricalClaim, ReferenceModels, TrainingCost
from workers.judge.samples.samples import halves
from workers.judge.scores.order import CommittedRows, nameless
from workers.leases.lease import JobContext
from workers.lineage.versions import salts_of
from workers.training.fedavg.base import ClientData
from workers.training.networks.weights import decode_weights
from workers.training.replay.models import (
    ScoredRows,
    answers,
    reference_clients,
    train_file,
)

log = logging.getLogger(__name__)

WITH_SILOS = "the rows lie with silos, and a judge trains on none of theirs"
TOO_FEW = "the samples do not allow a test"


class TooLateError(Exception):
    """There is no time for all trainings and the retraining after them."""


def with_trained(
    job: JobContext,
    config: NetworkConfig,
    published: bytes,
    before: str,
    claim: EmpiricalClaim,
    rows: CommittedRows,
) -> tuple[EmpiricalClaim, CommittedRows]:
    """Return the claim with the models that its policy requires, or with why they are missing.

    published: the judged model's file; before: the id of the artifact with the erased rows. If
    no model is required, the claim is unchanged; else it is returned in the order of
    `nameless`, in which the samples are drawn. The claim's seed determines which model trains
    on which rows, so a restarted judgement trains the same models.
    """
    policy = claim.policy
    if not (policy.references or policy.distances):
        return claim, rows
    if job.services.settings.silos:
        return replace(claim, trained=TrainingCost(missing=WITH_SILOS)), rows
    claim, rows = nameless(claim, rows)
    if not _is_testable(claim):
        return replace(claim, trained=TrainingCost(missing=TOO_FEW)), rows
    return _trained(job, config, published, before, claim, rows), rows


def _is_testable(claim: EmpiricalClaim) -> bool:
    """Return whether the samples suffice: if not, nothing is tested, so training is useless."""
    alpha = spent(claim.policy.alpha, claim.requests_before)
    try:
        drawn = samples.draw(claim, *samples.read(claim))
        return samples.check_samples(claim, drawn, alpha).check.passed
    except RefusedError:
        return False


def _trained(
    job: JobContext,
    config: NetworkConfig,
    published: bytes,
    before: str,
    claim: EmpiricalClaim,
    rows: CommittedRows,
) -> EmpiricalClaim:
    policy, network = claim.policy, config.network
    device, clock = device_of(job.services), TrainingClock(job)
    count = policy.references or 0
    tested = [*rows.forget, *rows.pool]
    sample = rows.retained if policy.distances else []
    included = halves(claim.seed, count, tested)
    # The sample is among the retained rows already: no model gets it twice.
    drawn = np.pad(included, ((0, 0), (0, len(sample))))
    logits, took, untrained = [], TrainingCost(), claim
    try:
        opened = open_rows(job, config, before, [*tested, *sample])
        for number, flags in enumerate(drawn, 1):
            clock.check(count - number + 1 + bool(policy.distances))
            clients = reference_clients(opened.retained, opened.tested, flags)
            file, flops = train_file(network, clients, config.training_of(clients), device)
            logits.append(answers(file, network, opened.tested)[: len(tested)])
            took = replace(took, references=took.references + flops)
            progress.record(job, "references", number, count)
            log.info("job %s: reference model %d of %d", job.lease.job_id, number, count)
        if logits:
            claim = replace(claim, references=ReferenceModels(np.stack(logits), included))
        if policy.distances:
            clock.check(1)
            training = config.training_of(opened.retained)
            file, flops = train_file(network, opened.retained, training, device)
            took = replace(took, retrained=flops)
            gap = parameter_gap(_flat(published), _flat(file))
            found = answers(file, network, opened.tested)
            claim = replace(
                claim,
                retrained=found[: len(tested)],
                retrained_retained=found[len(tested) :],
                parameter_gap=gap,
            )
    except TooLateError:
        return replace(untrained, trained=replace(took, missing=LATE))
    except ModelError as error:
        # Trained as registered on other rows, it may fail where the published model did not.
        missing = f"a training ended in {type(error).__name__}"
        return replace(untrained, trained=replace(took, missing=missing))
    return replace(claim, trained=took)


class TrainingClock:
    """Checks whether the remaining trainings and a repeated retraining would be late."""

    def __init__(self, job: JobContext) -> None:
        with job.services.reading() as session:
            self._due = first_due(session, job.lease)
            self._opened = database_clock(session)
        self._started, self._begun = perf_counter(), 0

    def check(self, left: int) -> None:
        """Raise TooLateError if there is no time for `left` trainings at the pace so far."""
        taken = perf_counter() - self._started
        each = taken / self._begun if self._begun else 0.0
        now = self._opened + timedelta(seconds=taken)
        if is_late(now, self._due, timedelta(seconds=each * (left + 2))):
            raise TooLateError
        self._begun += 1


def _flat(file: bytes) -> Vector:
    _, weights = decode_weights(file)
    return np.concatenate([weights[name].double().numpy().ravel() for name in sorted(weights)])


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """The retained training rows by client, and those whose scores are in a claim."""

    retained: Mapping[str, ClientData]
    tested: Mapping[str, ScoredRows]


def open_rows(
    job: JobContext,
    config: NetworkConfig,
    before: str,
    scored: Sequence[bytes],
) -> Opened:
    """Open a model's rows. before: the id of the artifact with the erased ones.

    scored: the salted digests of the tested rows, in the order in which they are numbered.
    Raises RefusedError if one of them matches no row.
    """
    services, model_id = job.services, job.lease.model_id
    with services.reading() as session:
        forgotten = network_before.decode(services.artifacts.get(session, before))
        stored = holdings(assemble(services, session, model_id), config)
        salted = salts_of(session, model_id)
    old = dict(zip(forgotten.records, forgotten.salts, strict=True))
    sides = ((forgotten.holdings(config.is_held_out), old), (stored, salted))
    numbers = {digest: number for number, digest in enumerate(scored)}
    parts: dict[str, list[ClientData]] = defaultdict(list)
    places: dict[str, list[int]] = defaultdict(list)
    for rows, known in sides:
        digests = row_digests(rows, known)
        for client, own in rows.items():
            at = [
                (place, number)
                for place, record in enumerate(own.records)
                if (number := numbers.get(digests[record])) is not None
            ]
            if at:
                parts[client].append(own.data.only(torch.tensor([place for place, _ in at])))
                places[client] += [number for _, number in at]
    if sorted(number for own in places.values() for number in own) != list(range(len(scored))):
        raise RefusedError("a scored row is not there any more")
    tested = {
        client: ScoredRows(ClientData.joined(own), np.array(places[client], dtype=np.int64))
        for client, own in parts.items()
    }
    training = {client: own.training() for client, own in stored.items()}
    return Opened({c: data for c, data in training.items() if data is not None}, tested)
