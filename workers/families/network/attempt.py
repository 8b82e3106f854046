"""A later attempt of a network: another method, from the model before the erasure.

It never starts from the refuted version, which is neither the model that knew the erased rows
nor one that never did. The model before and the erased rows are sealed with the job until then.
"""

from collections.abc import Mapping

from sqlmodel import select

from lethe.certificates.statement import NAMED
from models import Job
from models.database.types import clock
from workers.errors import RefusedError
from workers.families.network.config import (
    NetworkConfig,
    network_config,
    policy_of,
)
from workers.families.network.data import before as network_before
from workers.families.network.data.before import Before
from workers.families.network.data.rows import Holdings, assemble, holdings, row_digests
from workers.families.network.data.sides import divide, validation
from workers.families.network.ladder import LATE, first_due, is_late, label
from workers.families.network.training import (
    RETRAIN,
    approximated,
    data_of,
    device_of,
    gave_way,
    out_of_memory_named,
    resumed,
    retain_side,
    retrained,
)
from workers.judge.policy.policy import LadderStep
from workers.judge.samples.empirical import VERIFIER
from workers.leases.lease import JobContext
from workers.lineage.versions import salts_of
from workers.methods.network.base import Side, UnlearningCase, UnlearningRequest
from workers.silos.answer import THREADS
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes
from workers.training.networks.weights import decode_weights, digest_of
from workers.updates import draft
from workers.updates.draft import Draft
from workers.updates.update import UpdateResult


def run(job: JobContext) -> UpdateResult:
    """Return the version of the lease's attempt: of the policy's ladder, or the retraining.

    A method that fails here, or for which it is too late, falls back to the retraining within
    the stage: the erasure was executed, and is certified in any case. Raises RefusedError if
    the rows cannot be trained on, RoundLostError to be retried.
    """
    services, lease = job.services, job.lease
    config, ladder = network_config(job.model), policy_of(job.model).ladder
    with services.reading() as session:
        rows = holdings(assemble(services, session, lease.model_id), config)
        salted = salts_of(session, lease.model_id)
    if lease.step > 1 + len(ladder):
        return retrained(job, config, rows, salted)
    step = ladder[lease.step - 2]
    if (known := gave_way(job, data_of(rows, salted))) is not None:
        return retrained(job, config, rows, salted, escalated=known)
    if (forbidden := why_not(job)) is not None:
        why = f"{label(step)}: {forbidden}"
        return retrained(job, config, rows, salted, escalated=why)
    try:
        return _approximated(job, config, step, rows, salted)
    except RefusedError as error:
        why = f"{label(step)}: {type(error).__name__.removesuffix('Error')}"
    return retrained(job, config, rows, salted, escalated=why)


def not_run(method_id: str, *, trained_on: bool) -> str | None:
    """Return why a method was not run at all, None if the request names the retraining."""
    if method_id == RETRAIN.id:
        return None
    why = "none of the records was ever trained on"
    if trained_on:
        why = "no training row is retained"
    return f"{method_id}: not run, {why}"


def why_not(job: JobContext) -> str | None:
    """Return why an attempt is not made, or not repeated; the retraining replaces it."""
    services, lease = job.services, job.lease
    if lease.tries > services.settings.max_tries:
        return f"given up after {services.settings.max_tries} tries"
    with services.reading() as session:
        return LATE if is_late(clock(session), first_due(session, lease)) else None


class OtherBeforeError(RefusedError):
    """The data sealed at the erasure are not those from before it."""


def _approximated(
    job: JobContext,
    config: NetworkConfig,
    step: LadderStep,
    rows: Holdings,
    salted: Mapping[str, bytes],
) -> UpdateResult:
    before = _sealed(job, config)
    method = config.method(step.method, step.settings)
    case = _case(job, config, before, rows, salted)
    with out_of_memory_named(case):
        found = resumed(job, case.data, lambda hooks: method.run(case, hooks))
    if found.claim != VERIFIER.id:
        raise RefusedError(f"{method.id}: its promise is not one that a later attempt can make")
    origin = digest_of(before.model)
    return approximated(job, config, method, case, found, origin, {NAMED: label(step)})


def _sealed(job: JobContext, config: NetworkConfig) -> Before:
    services = job.services
    with services.reading() as session:
        row = session.exec(select(Job).where(Job.id == job.lease.job_id)).one()
        if row.before_id is None:
            raise OtherBeforeError("nothing was kept of before the erasure")
        plan = draft.load(services, session, row)
        before = network_before.decode(services.artifacts.get(session, row.before_id))
    check_before(before, plan, config)
    return before


def check_before(before: Before, plan: Draft, config: NetworkConfig) -> None:
    """Compare the data sealed at the erasure with what was published about them.

    Raises OtherBeforeError if the model or the rows differ.
    """
    salted = dict(zip(before.records, before.salts, strict=True))
    pinned = row_digests(before.holdings(config.is_held_out), salted)
    same_rows = sorted(value.hex() for value in pinned.values()) == sorted(plan.rows_gone)
    if not same_rows or digest_of(before.model) != plan.head_before:
        raise OtherBeforeError("the sealed model or rows are not those of before the erasure")


def _case(
    job: JobContext,
    config: NetworkConfig,
    before: Before,
    rows: Holdings,
    salted: Mapping[str, bytes],
) -> UnlearningCase:
    sides = divide(rows, ())
    targets = divide(before.holdings(config.is_held_out), ()).retained
    # Their positions among the other rows are no longer known, and no method needs them.
    some = {
        client: tuple(range(len(own)))
        for client, own in targets.items()
        if client in sides.retained
    }
    return UnlearningCase(
        network=config.network,
        weights=decode_weights(before.model)[1],
        request=UnlearningRequest(frozenset(targets.keys() - sides.retained.keys()), some),
        config=config.training_of(sides.retained),
        retained=retain_side(job, sides),
        # The erased rows have left their blocks, so no silo holds them: this process computes
        # on them.
        targets=Side(InProcess(targets, device_of(job.services), THREADS), sizes(targets)),
        data=data_of(rows, salted),
        validation=validation(config, rows, device_of(job.services)),
    )
