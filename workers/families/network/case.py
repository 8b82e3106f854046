"""What the verifiers of networks are given that open the rows: those, and a training again."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from sqlmodel import Session

from app.service.context import Services
from lethe.catalogue import CHECKS
from lethe.errors import LetheError
from workers.errors import ModelError, RefusedError
from workers.families.network import (
    certified_case as network_certified_case,
)
from workers.families.network import (
    empirical as network_empirical,
)
from workers.families.network import progress
from workers.families.network import (
    releases as network_releases,
)
from workers.families.network.config import NetworkConfig, network_config
from workers.families.network.rows import (
    Holdings,
    assemble,
    holdings,
    row_digests,
    rows_digest,
    salts,
)
from workers.families.network.sides import divide
from workers.families.network.state import TrainingState, decode_state
from workers.families.network.training import device_of, here
from workers.jobs import claims
from workers.jobs.case import Case, Judge, Judged
from workers.jobs.context import JobContext
from workers.jobs.logged import check_logged
from workers.jobs.registered import Registered, registered
from workers.judge.base import PurgeClaim, RetainedSetClaim
from workers.judge.certified.logistic import VERIFIER as CERTIFIED
from workers.judge.checks import ODD_INPUT, judged, report_of
from workers.judge.exact_retrained import VERIFIER as RETRAINED
from workers.judge.exact_retrained import RetrainedClaim
from workers.judge.samples.empirical import VERIFIER as EMPIRICAL
from workers.training.replay.retraining import most_missing, reexecute, start_digest


class OtherMachineError(LetheError):
    """The bits of this machine are not those of the training's; another may verify it."""

    slug, title, status = "other-machine", "Another machine must verify this", 503


def prepare(job: JobContext, session: Session, case: Case, seed: bytes) -> Judge:
    """Load what an executed job left of a network; the result judges it.

    What cannot even be read is refuted: the judged must not be able to stop the judge.
    """
    judges = {one.id: one for one in (RETRAINED, CERTIFIED)}
    verifier = judges.get(case.plan.claim, EMPIRICAL)
    try:
        judge = _prepare(job, session, case, seed)
    except ODD_INPUT as error:
        return partial(_unreadable, verifier.id, verifier.version, error)

    def run() -> Judged:
        try:
            return judge()
        except ODD_INPUT as error:
            return _unreadable(verifier.id, verifier.version, error)

    return run


def _unreadable(verifier: str, version: str, error: Exception) -> Judged:
    value = f"what was published cannot be evaluated: {type(error).__name__}"
    report = report_of([judged(CHECKS["claim"], value, passed=False)])
    return Judged(verifier, version, report, {})


def _prepare(job: JobContext, session: Session, case: Case, seed: bytes) -> Judge:
    services, lease = job.services, job.lease
    check_logged(services.ledger, case.model, case.before, case.after)
    if case.plan.claim in (EMPIRICAL.id, CERTIFIED.id):
        network_releases.check_no_training(services.ledger, case.model, case.after)
    if case.plan.claim == EMPIRICAL.id:
        return network_empirical.prepare(services, session, lease, case, seed)
    if case.plan.claim not in (RETRAINED.id, CERTIFIED.id):
        raise RefusedError("nobody here judges such a claim")
    config = network_config(case.model)
    held = assemble(services, session, lease.model_id)
    ids = [record for one in held for record in one.block.records]
    rows = holdings(held, config)
    digests = row_digests(rows, salts(session, lease.model_id))
    gone = [bytes.fromhex(digest) for digest in case.plan.rows_gone]
    common = Common(
        case,
        config,
        rows,
        file=services.artifacts.get(session, case.after.head_id),
        sets=claims.retained_set(session, lease, case.plan, ids, case.before, case.after),
        purge=claims.purge(services, session, lease, case.plan, ids),
        rows_after=rows_digest(digests.values()),
        rows_before=rows_digest([*digests.values(), *gone]),
        registered=registered(services.ledger, case.model),
    )
    if case.plan.claim == CERTIFIED.id:
        noise = network_certified_case.load_noise(services, session, lease, common)
        return partial(network_certified_case.judge, common, noise)
    alike = _same_machine(services, case)
    if not alike and lease.attempt > 1:
        raise OtherMachineError("verify on a machine like the one that trained")
    device, silos = device_of(services), services.settings.silos
    state = decode_state(services.artifacts.get(session, case.after.state_id))
    telling = partial(progress.repetition, services, lease)
    return partial(_retrained, common, state, telling, alike=alike, device=device, silos=silos)


@dataclass(frozen=True, slots=True, eq=False)
class Common:
    """What is judged, and the stored rows. rows_*: recomputed digests of all rows."""

    case: Case
    config: NetworkConfig
    rows: Holdings
    file: bytes
    sets: RetainedSetClaim
    purge: PurgeClaim
    rows_after: str
    rows_before: str
    registered: Registered


def _same_machine(services: Services, case: Case) -> bool:
    """Return whether this process computes as the one that trained."""
    said = case.plan.parameters
    return all(said.get(name) == value for name, value in here(services).items())


def _retrained(
    common: Common,
    state: TrainingState,
    telling: Callable[[int], Callable[[int], None]],
    *,
    alike: bool,
    device: torch.device,
    silos: int,
) -> Judged:
    case, config = common.case, common.config
    clients = divide(common.rows, ()).stays
    training = config.training_of(clients)
    # In one process nobody is away: whoever was dropped is dropped again by the screening.
    missing = state.missing if silos else ()
    try:
        tell = telling(training.rounds)
        again = reexecute(config.network, clients, training, missing, device, tell)
    except ModelError:
        again = ""  # the claimed training cannot be repeated: no digest is equal to it
    claim = RetrainedClaim(
        retained_set=common.sets,
        purge=common.purge,
        published_digest=case.after.head_digest,
        file_digest=hashlib.sha256(common.file).hexdigest(),
        reexecuted_digest=again,
        rounds=training.rounds,
        reexecuted_rounds=training.rounds,
        claimed_start=state.start,
        # A model that is not as registered has no start that could be the registered one.
        start=start_digest(config.network, training) if common.registered.unchanged else "",
        claimed_data=case.after.statistics_digest,
        data=common.rows_after,
        answers_missing=len(missing),
        environment_equal=alike,
        answers_allowed=most_missing(training, len(clients)),
        rows_before=(case.before.statistics_digest, common.rows_before),
    )
    details = {"rows": str(sum(len(data) for data in clients.values()))}
    return Judged(RETRAINED.id, RETRAINED.version, RETRAINED.verify(claim), details)
