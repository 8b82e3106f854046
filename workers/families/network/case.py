"""The verifiers' input for networks: stored rows, a repeated training, a sealed secret."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from sqlmodel import Session

from app.service.context import Services
from app.vault.master import NOISY_FINETUNING
from lethe.catalogue import CHECKS
from lethe.errors import LetheError
from workers.cases.case import ExecutedJob, Judge, Verdict
from workers.cases.claims import purge_claims, retained_commitments, retained_set_claim
from workers.errors import ModelError, RefusedError
from workers.families.network import empirical, logged, noisy, progress
from workers.families.network.certified import bounds_of, registered_terms
from workers.families.network.config import (
    NetworkConfig,
    TrainingState,
    decode_state,
    network_config,
)
from workers.families.network.data.rows import (
    Holdings,
    assemble,
    holdings,
    row_digests,
    rows_digest,
)
from workers.families.network.data.sides import divide
from workers.families.network.training import device_of, here
from workers.judge.base import PurgeClaim, RetainedSetClaim
from workers.judge.certified.logistic import VERIFIER, LogisticClaim
from workers.judge.certified.logistic import VERIFIER as CERTIFIED
from workers.judge.certified.logistic_gradient import Single
from workers.judge.certified.logistic_noise import NoiseClaim, gaussian
from workers.judge.certified.noisy import VERIFIER as NOISY
from workers.judge.certified.noisy import NoisyClaim, NoisyTerms
from workers.judge.checks import ODD_INPUT, judged, report_of
from workers.judge.exact_retrained import VERIFIER as RETRAINED
from workers.judge.exact_retrained import RetrainedClaim
from workers.judge.samples.empirical import VERIFIER as EMPIRICAL
from workers.leases import checkpoints
from workers.leases.lease import JobContext
from workers.lineage.logged import LoggedRegistration, check_logged, registered
from workers.lineage.versions import salts_of
from workers.methods.certified.noise import KEY_BYTES, context_of
from workers.methods.certified.noisy_finetuning import NoisyFinetuning
from workers.methods.certified.release import Release
from workers.training.fedavg.noisy import finetune
from workers.training.fedavg.rounds import sizes
from workers.training.networks.registry import Network
from workers.training.networks.weights import (
    Weights,
    count,
    decode_weights,
    digest_of,
    encode_weights,
)
from workers.training.replay.models import WithoutSome, most_missing, reexecute, start_digest


class OtherMachineError(LetheError):
    """This machine's bits differ from those of the training's; another worker may verify it."""

    slug, title, status = "other-machine", "Another machine must verify this", 503


def prepare(job: JobContext, session: Session, case: ExecutedJob, seed: bytes) -> Judge:
    """Load the results of an executed job on a network; the returned function judges it.

    Unreadable results are refuted: damaged data must not be able to stop the judge.
    """
    judges = {one.id: one for one in (RETRAINED, CERTIFIED)}
    verifier = judges.get(case.plan.claim, EMPIRICAL)
    try:
        judge = _prepare(job, session, case, seed)
    except ODD_INPUT as error:
        return partial(_unreadable, verifier.id, verifier.version, error)

    def run() -> Verdict:
        try:
            return judge()
        except ODD_INPUT as error:
            return _unreadable(verifier.id, verifier.version, error)

    return run


def _unreadable(verifier: str, version: str, error: Exception) -> Verdict:
    value = f"what was published cannot be evaluated: {type(error).__name__}"
    report = report_of([judged(CHECKS["claim"], value, passed=False)])
    return Verdict(verifier, version, report, {})


def _prepare(job: JobContext, session: Session, case: ExecutedJob, seed: bytes) -> Judge:
    services, lease = job.services, job.lease
    check_logged(services.ledger, case.model, case.before, case.after)
    if case.plan.claim in (EMPIRICAL.id, CERTIFIED.id):
        logged.check_no_training(services.ledger, case.model, case.after)
    if case.plan.claim == EMPIRICAL.id:
        return empirical.prepare(job, session, case, seed)
    if case.plan.claim not in (RETRAINED.id, CERTIFIED.id):
        raise RefusedError("nobody here judges such a claim")
    config = network_config(case.model)
    held = assemble(services, session, lease.model_id)
    ids = [record for one in held for record in one.block.records]
    rows = holdings(held, config)
    digests = row_digests(rows, salts_of(session, lease.model_id))
    removed = [bytes.fromhex(digest) for digest in case.plan.rows_gone]
    common = Common(
        case,
        config,
        rows,
        file=services.artifacts.get(session, case.after.head_id),
        sets=retained_set_claim(case, retained_commitments(session, case.model, ids)),
        purge=purge_claims(services, session, [case], ids)[0],
        rows_after=rows_digest(digests.values()),
        rows_before=rows_digest([*digests.values(), *removed]),
        registered=registered(services.ledger, case.model),
    )
    by_noise = case.plan.claim == CERTIFIED.id and case.plan.method == NOISY_FINETUNING
    if case.plan.claim == CERTIFIED.id and not by_noise:
        noise = _noise(job, session, common)
        return partial(judge_certified, common, noise)
    alike = _same_machine(services, case)
    if not alike and lease.step > 1:
        raise OtherMachineError(
            "the training cannot be repeated on this processor: run a worker on a "
            "machine like the one that trained"
        )
    device, silos = device_of(services), services.settings.silos
    if by_noise:
        sealed = _sealed_run(job, session, common)
        return partial(judge_noisy, common, sealed, alike=alike, device=device)
    state = decode_state(services.artifacts.get(session, case.after.state_id))
    telling = partial(progress.repetition, job)
    return partial(_retrained, common, state, telling, alike=alike, device=device, silos=silos)


@dataclass(frozen=True, slots=True, eq=False)
class Common:
    """What is judged, and the stored rows. rows_*: recomputed digests of all rows."""

    case: ExecutedJob
    config: NetworkConfig
    rows: Holdings
    file: bytes
    sets: RetainedSetClaim
    purge: PurgeClaim
    rows_after: str
    rows_before: str
    registered: LoggedRegistration


def _same_machine(services: Services, case: ExecutedJob) -> bool:
    """Return whether this process computes identically to the one that trained."""
    recorded = case.plan.parameters
    return all(recorded.get(name) == value for name, value in here(services).items())


def _retrained(
    common: Common,
    state: TrainingState,
    telling: Callable[[int], Callable[[int], None]],
    *,
    alike: bool,
    device: torch.device,
    silos: int,
) -> Verdict:
    case, config = common.case, common.config
    clients = divide(common.rows, ()).retained
    training = config.training_of(clients)
    # In one process no client drops out by itself: the screening drops the same ones again.
    missing = state.missing if silos else ()
    try:
        tell = telling(training.rounds)
        again = reexecute(config.network, clients, training, missing, device, tell)
    except ModelError:
        again = ""  # the claimed training cannot be repeated: no digest equals this
    claim = RetrainedClaim(
        retained_set=common.sets,
        purge=common.purge,
        published_digest=case.after.head_digest,
        file_digest=hashlib.sha256(common.file).hexdigest(),
        reexecuted_digest=again,
        rounds=training.rounds,
        reexecuted_rounds=training.rounds,
        claimed_start=state.start,
        # A model that is not as registered has no start that could match the registered one.
        start=start_digest(config.network, training) if common.registered.unchanged else "",
        claimed_data=case.after.statistics_digest,
        data=common.rows_after,
        answers_missing=len(missing),
        environment_equal=alike,
        answers_allowed=most_missing(training, len(clients)),
        rows_before=(case.before.statistics_digest, common.rows_before),
    )
    details = {"rows": str(sum(len(data) for data in clients.values()))}
    report = RETRAINED.verify(claim)
    return Verdict(RETRAINED.id, RETRAINED.version, report, details, repeated=True)


def _noise(job: JobContext, session: Session, common: Common) -> NoiseClaim | None:
    """Return the registered noise and this release's secret, None without noise.

    Raises RefusedError if no secret was kept, or no repeated training began a budget.
    """
    case, terms = common.case, registered_terms(common.config)
    if not terms.sigma:
        return None
    services, sealed = job.services, checkpoints.load_before(job, session)
    if sealed is None:
        raise RefusedError("the secret of the release was not kept")
    release = Release.decode(sealed, common.config.network, case.after.statistics_digest)
    bias, weight = _head(release.centre)
    return NoiseClaim(
        sigma=terms.sigma,
        epsilon=terms.epsilon,
        delta=terms.delta,
        centre_bias=bias,
        centre_weight=weight,
        key=release.key or b"",
        commitment=common.registered.noise,
        releases=terms.releases,
        before=logged.releases_since_training(services.ledger, case.model, case.after),
        ordinal=logged.ordinal(services.ledger, case.model, case.after),
    )


def judge_certified(common: Common, noise: NoiseClaim | None) -> Verdict:
    """Judge a published logistic head. Read errors are raised: the caller refutes it."""
    case, config = common.case, common.config
    terms = registered_terms(config)
    penalty = _objective(common)
    bound = float(case.plan.bounds["distance"])
    if dict(case.plan.bounds) != bounds_of(terms, bound):
        raise RefusedError("other bounds are promised than were registered")
    bias, weight = _head(_published(common.file, config.network))
    parts = [part for own in common.rows.values() if (part := own.training()) is not None]
    if not parts:
        raise RefusedError("there are no rows that the model could be the optimum of")
    claim = LogisticClaim(
        retained_set=common.sets,
        purge=common.purge,
        published_digest=case.after.head_digest,
        file_digest=hashlib.sha256(common.file).hexdigest(),
        claimed_data=case.after.statistics_digest,
        data=common.rows_after,
        features=np.concatenate([part.inputs.numpy() for part in parts]),
        labels=np.concatenate([part.targets.numpy() for part in parts]),
        bias=bias,
        weight=weight,
        penalty=penalty,
        bound=bound,
        tolerance=terms.tolerance,
        noise=noise,
        registration=common.registered.config,
        rows_before=(case.before.statistics_digest, common.rows_before),
    )
    details = {"rows": str(len(claim.labels))}
    return Verdict(VERIFIER.id, VERIFIER.version, VERIFIER.verify(claim), details)


@dataclass(frozen=True, slots=True, eq=False)
class SealedRun:
    """What only the verifier sees, and the log's counts.

    model: the file before the erasure.
    """

    key: bytes
    model: bytes
    before: int
    ordinal: int


def _sealed_run(job: JobContext, session: Session, common: Common) -> SealedRun:
    """Return what was sealed at the erasure. Raises RefusedError if nothing was."""
    services, case = job.services, common.case
    sealed = checkpoints.load_before(job, session)
    if sealed is None:
        raise RefusedError("the key and the model before were not kept")
    return SealedRun(
        key=sealed[:KEY_BYTES],
        model=sealed[KEY_BYTES:],
        before=logged.releases_since_training(services.ledger, case.model, case.after),
        ordinal=logged.ordinal(services.ledger, case.model, case.after),
    )


def judge_noisy(
    common: Common, sealed: SealedRun, *, alike: bool, device: torch.device
) -> Verdict:
    """Judge a published head. Read errors are raised: the caller refutes it."""
    case, config = common.case, common.config
    method = noisy.registered_method(config)
    if dict(case.plan.bounds) != noisy.bounds_of(method):
        raise RefusedError("other bounds are promised than were registered")
    sigma = float(case.plan.parameters["noise.sigma"])
    claim = NoisyClaim(
        retained_set=common.sets,
        purge=common.purge,
        published_digest=case.after.head_digest,
        file_digest=hashlib.sha256(common.file).hexdigest(),
        claimed_data=case.after.statistics_digest,
        data=common.rows_after,
        repeated=_repeated(common, sealed, method, sigma, device),
        environment_equal=alike,
        terms=NoisyTerms(
            steps=method.steps,
            start_norm=method.start_norm,
            gradient_norm=method.gradient_norm,
            learning_rate=method.learning_rate,
            pull=method.pull,
            epsilon=method.epsilon,
            delta=method.delta,
            releases=method.releases,
        ),
        sigma=sigma,
        key=sealed.key,
        commitment=common.registered.noise,
        parameters=count(config.network),
        before=sealed.before,
        registration=common.registered.config,
        rows_before=(case.before.statistics_digest, common.rows_before),
        model_before=(case.before.head_digest, hashlib.sha256(sealed.model).hexdigest()),
    )
    rows = sum(len(data) for data in divide(common.rows, ()).retained.values())
    details = {"rows": str(rows)}
    return Verdict(NOISY.id, NOISY.version, NOISY.verify(claim), details)


def _repeated(
    common: Common,
    sealed: SealedRun,
    method: NoisyFinetuning,
    sigma: float,
    device: torch.device,
) -> str:
    """Return the digest of the file that repeating the run produces, empty if it fails."""
    config = common.config
    network, weights = decode_weights(sealed.model)
    if network != config.network:
        raise RefusedError("the sealed model has another architecture than the registered one")
    clients = divide(common.rows, ()).retained
    context = context_of(common.rows_after, sealed.ordinal)
    try:
        again, _ = finetune(
            network,
            weights,
            sizes(clients),
            replace(config.training_of(clients), timeout=0.0),
            WithoutSome(clients, (), device),
            replace(method.chosen, sigma=sigma),
            lambda step, size: gaussian(sealed.key, f"{context}|noisy {step}", size),
        )
    except ModelError:
        return ""  # the claimed run fails here
    return digest_of(encode_weights(network.id, network.parameters, again))


def _objective(common: Common) -> float:
    """Return λ of the registered objective, if that is strongly convex."""
    local = common.config.training.local
    if common.config.network.id != "logistic" or local.loss != "cross-entropy":
        raise RefusedError("only a logistic head with cross-entropy has a proven bound")
    if local.optimizer == "adamw":
        raise RefusedError(
            "adamw minimises no function, so the distance to an optimum cannot be "
            "proven: register the optimizer sgd or adam"
        )
    return local.weight_decay  # if it is 0, the verifier's proof does not apply


def _published(file: bytes, registered: Network) -> Weights:
    network, weights = decode_weights(file)
    if (network.id, network.parameters) != (registered.id, registered.parameters):
        raise RefusedError(
            "the published file has another architecture than the registered one"
        )
    return weights


def _head(weights: Weights) -> tuple[Single, Single]:
    """Return bias (c,) and weight (c, p), float32."""
    return weights["head.bias"].numpy(), weights["head.weight"].numpy()
