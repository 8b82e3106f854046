"""What the verifier of certified logistic heads is given: rows, weights, the sealed secret."""

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from sqlmodel import Session, select

from app.service.context import Services
from models import Job
from workers.errors import RefusedError
from workers.families.network import releases as network_releases
from workers.families.network.certified import bounds_of, registered_terms
from workers.jobs.case import Judged
from workers.jobs.lease import Lease
from workers.judge.certified.logistic import VERIFIER, LogisticClaim
from workers.judge.certified.logistic_gradient import Single
from workers.judge.certified.logistic_noise import NoiseClaim
from workers.methods.certified.release import Release
from workers.training.networks.files import decode_weights
from workers.training.networks.registry import Network
from workers.training.networks.weights import Weights

if TYPE_CHECKING:  # it imports this file
    from workers.families.network.case import Common


def load_noise(
    services: Services, session: Session, lease: Lease, common: "Common"
) -> NoiseClaim | None:
    """Return the noise that was registered and the secret of this release, None without.

    Raises RefusedError where nothing was kept, or no repeated training began a budget.
    """
    case, terms = common.case, registered_terms(common.config)
    if not terms.sigma:
        return None
    job = session.exec(select(Job).where(Job.id == lease.job_id)).one()
    if job.before_id is None:
        raise RefusedError("the secret of the release was not kept")
    sealed = services.artifacts.get(session, job.before_id)
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
        before=network_releases.made(services.ledger, case.model, case.after),
        ordinal=network_releases.ordinal(services.ledger, case.model, case.after),
    )


def judge(common: "Common", noise: NoiseClaim | None) -> Judged:
    """Judge a published logistic head. Raises what cannot be read: refuted by the caller."""
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
    return Judged(VERIFIER.id, VERIFIER.version, VERIFIER.verify(claim), details)


def _objective(common: "Common") -> float:
    """Return λ of the registered objective, if that is strongly convex."""
    local = common.config.training.local
    if common.config.network.id != "logistic" or local.loss != "cross-entropy":
        raise RefusedError("only a logistic head with cross-entropy has a proven bound")
    if local.optimizer == "adamw":
        raise RefusedError("the registered training minimises no function")
    return local.weight_decay  # where it is 0, the verifier has nothing to prove by


def _published(file: bytes, registered: Network) -> Weights:
    network, weights = decode_weights(file)
    if (network.id, network.parameters) != (registered.id, registered.parameters):
        raise RefusedError("the published file is of another network than the registered")
    return weights


def _head(weights: Weights) -> tuple[Single, Single]:
    """Return bias (c,) and weight (c, p), float32."""
    return weights["head.bias"].numpy(), weights["head.weight"].numpy()
