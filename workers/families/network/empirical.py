"""The claim of an approximate erasure, assembled from scores of two models.

In one process the judge scores all rows itself. If silos are configured, it opens no row: it
collects the silos' answers and assembles them in the same way. Clients are ordered by their
digests, which do not depend on names.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sqlmodel import Session, select

from app.service.access import silo_keys
from lethe.certificates import shape
from lethe.certificates.evidence import Removal, record_commitment
from models import Job
from workers.arrays import Labels, Matrix
from workers.cases.case import ExecutedJob, Judge, Verdict
from workers.cases.claims import purge_claims, retained_commitments, retained_set_claim
from workers.errors import RefusedError
from workers.families.network.config import NetworkConfig, network_config, policy_of
from workers.families.network.data.rows import rows_digest
from workers.families.network.logged import judged_before
from workers.families.network.reference_models import with_trained
from workers.families.network.scores.answer import canary_claim, score
from workers.families.network.scores.sorting import Sorting
from workers.judge.samples.empirical import VERIFIER
from workers.judge.samples.empirical_claim import EmpiricalClaim
from workers.judge.scores.file import decode_scores, encode_scores
from workers.judge.scores.order import CommittedRows
from workers.judge.silos import SilosClaim
from workers.leases.lease import JobContext
from workers.lineage.logged import LoggedRegistration, registered
from workers.lineage.versions import salts_of
from workers.silos.collect import SiloAnswers, collect
from workers.silos.score_task import ScoreTask, limit_of
from workers.silos.scores import SCORED, ClientScores
from workers.training.replay.models import scorer

ID = VERIFIER.id


@dataclass(frozen=True, slots=True, eq=False)
class JudgementInput:
    """An executed job, its published file, and its model's registration."""

    job: JobContext
    case: ExecutedJob
    config: NetworkConfig
    file: bytes
    registered: LoggedRegistration
    earlier: int
    seed: bytes
    removal: Removal
    sorting: Sorting
    tasks: Sequence[ScoreTask]  # one per silo, or a single one for all clients without silos


def prepare(job: JobContext, session: Session, case: ExecutedJob, seed: bytes) -> Judge:
    """Load a judgement's input; the returned function judges it and may ask silos."""
    services, lease = job.services, job.lease
    row = session.exec(select(Job).where(Job.id == lease.job_id)).one()
    if row.before_id is None:
        raise RefusedError("nothing was kept to compare with")
    config = network_config(case.model)
    removal = shape.read(Removal, case.plan.removal)
    salted = salts_of(session, lease.model_id)
    training = (
        record_commitment(salt, r) for r, salt in salted.items() if not config.is_held_out(r)
    )
    silos = max(1, services.settings.silos)
    first = ScoreTask(
        job_id=lease.job_id,
        model_id=lease.model_id,
        silo=0,
        silos=silos,
        before=row.before_id,
        published=case.after.head_id,
        models=(case.before.head_digest, case.after.head_digest),
        own=tuple(sorted(record.commitment.hex() for record in removal.records)),
        seed=seed.hex(),
        limit=limit_of(seed, training),
        nonce=os.urandom(16).hex(),
    )
    given = JudgementInput(
        job=job,
        case=case,
        config=config,
        file=services.artifacts.get(session, case.after.head_id),
        registered=registered(services.ledger, case.model),
        earlier=judged_before(services.ledger, case.model, case.after, seed),
        seed=seed,
        removal=removal,
        sorting=Sorting(config, salted, removal),
        tasks=[replace(first, silo=silo) for silo in range(silos)],
    )
    return partial(judge, given)


def judge(given: JudgementInput) -> Verdict:
    """Judge an approximate erasure on scores, of silos if there are any.

    Raises RefusedError for a claim that cannot be judged.
    """
    services = given.job.services
    scorer(given.file, given.config.network)  # an invalid model file is not a silo's fault
    if services.settings.silos:
        stamps = given.config.canary is not None
        logged = partial(silo_keys.accepted, services, given.case.model.ref)
        found = collect(services, given.tasks, given.config.network, logged, stamps=stamps)
        given.sorting.leave_out(found, given.tasks)
    else:
        found = SiloAnswers(scores={0: score(services, given.tasks[0])[0]})
    with services.reading() as session:
        claim, rows = claim_of(session, given, found)
    claim, rows = with_trained(
        given.job, given.config, given.file, given.tasks[0].before, claim, rows
    )
    details = {"policy": given.registered.policy, "seed": given.seed.hex()}
    if services.settings.silos:
        signed = sorted(found.signed_by.items())
        details["silos"] = " ".join(f"{silo}:{key[:16]}" for silo, key in signed) or "none"
    file = encode_scores(claim, rows)
    # The verdict depends only on what the file holds.
    report = VERIFIER.verify(decode_scores(file)[0])
    return Verdict(VERIFIER.id, VERIFIER.version, report, details, file)


def claim_of(
    session: Session, given: JudgementInput, found: SiloAnswers
) -> tuple[EmpiricalClaim, CommittedRows]:
    """Return what is to be verified about the scores that were answered, and their rows."""
    job, case = given.job, given.case
    clients = [one for scores in found.scores.values() for one in scores.clients]
    clients.sort(key=lambda one: sorted(one.digests()))
    stored = [digest for one in clients for digest in one.training + one.held]
    went = [digest for one in clients for digest in one.forget + one.unseen + one.other]
    if not found.faults:
        _check_gone(given, clients, went)
    befores = [scores.models[0] for scores in found.scores.values()]
    foreign = [digest for digest in befores if digest != case.before.head_digest]
    file = hashlib.sha256(given.file).hexdigest()
    ids = _records(session, given, clients)
    held, forget, unseen, retained = (
        part_of(clients, group, given.tasks[0], given.config.network.classes)
        for group in SCORED
    )
    pool = unseen.joined(held)
    claim = EmpiricalClaim(
        retained_set=retained_set_claim(case, retained_commitments(session, case.model, ids)),
        purge=purge_claims(job.services, session, [case], ids)[0],
        published_digest=case.after.head_digest,
        model=file,
        finite=True,  # otherwise it would not have been scored
        forget_labels=forget.labels,
        forget_clients=forget.clients,
        forget_before=forget.before,
        forget_after=forget.after,
        pool_labels=pool.labels,
        pool_clients=pool.clients,
        pool_before=pool.before,
        pool_after=pool.after,
        retained_labels=retained.labels,
        retained_before=retained.before,
        retained_after=retained.after,
        policy=policy_of(case.model),
        policy_digest=given.registered.policy,
        requests_before=given.earlier,
        seed=given.seed,
        rows_before=(case.before.statistics_digest, rows_digest([*stored, *went])),
        rows_after=(case.after.statistics_digest, rows_digest(stored)),
        model_before=(case.before.head_digest, [*foreign, *befores, ""][0]),
        canary=canary_claim(given.config.canary, clients, given.config.network.classes),
        silos=_silos(given, found) if job.services.settings.silos else None,
    )
    return claim, CommittedRows(stored, went, forget.rows, pool.rows, retained.rows)


def _check_gone(
    given: JudgementInput, clients: Sequence[ClientScores], went: Sequence[bytes]
) -> None:
    own = sum(len(one.forget) + len(one.unseen) for one in clients)
    pinned = sorted(given.case.plan.rows_gone)
    if sorted(digest.hex() for digest in went) != pinned or own != len(given.removal.records):
        raise RefusedError("the rows to be tested are not those that went")


def _silos(given: JudgementInput, found: SiloAnswers) -> SilosClaim:
    faults = Counter(found.faults.values())
    keys = {str(silo): key for silo, key in sorted(found.signed_by.items())}
    return SilosClaim(len(given.tasks), len(found.scores), dict(faults), keys)


def _records(
    session: Session, given: JudgementInput, clients: Sequence[ClientScores]
) -> list[str]:
    """Return the record of each stored row, by its commitment.

    Taken from the ids stored with the rows, so that a row without its record shows up, even if
    the record was erased.
    """
    salted = salts_of(session, given.job.lease.model_id)
    known = {record.commitment: record.record for record in given.removal.records}
    known |= {record_commitment(salt, record): record for record, salt in salted.items()}
    stored = [commitment for one in clients for commitment in one.commitments]
    return [known.get(commitment, commitment.hex()) for commitment in stored]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows of all clients: labels (n,), logits (n, classes) of both models, clients (n,).

    A client is identified by a digest over its rows' salted digests: equal for equal clients,
    and not a name. rows: n salted digests, one for each score.
    """

    labels: Labels
    before: Matrix
    after: Matrix
    clients: NDArray[np.str_]
    rows: Sequence[bytes]

    def joined(self, other: "Part") -> "Part":
        """Return these rows, then others."""
        return Part(
            np.concatenate([self.labels, other.labels]),
            np.concatenate([self.before, other.before]),
            np.concatenate([self.after, other.after]),
            np.concatenate([self.clients, other.clients]),
            [*self.rows, *other.rows],
        )


def part_of(clients: Sequence[ClientScores], group: str, task: ScoreTask, classes: int) -> Part:
    """Return all clients' scored rows of a group of SCORED, as in any silo's task."""
    labels: list[Labels] = [np.zeros(0, dtype=np.int64)]
    before, after = [np.zeros((0, classes))], [np.zeros((0, classes))]
    names: list[str] = []
    scored: list[bytes] = []
    for one in clients:
        rows = one.rows_of(group)
        labels.append(one.labels[rows])
        before.append(one.before[rows])
        after.append(one.after[rows])
        names += [rows_digest(one.digests())] * len(labels[-1])
        if len(one.labels):  # otherwise the network is no classifier, and nothing was scored
            scored += one.asked(group, task)
    return Part(
        np.concatenate(labels),
        np.concatenate(before),
        np.concatenate(after),
        np.array(names, dtype=np.str_),
        scored,
    )
