"""What the verifiers of networks are given: rows, answers of both models, a training again."""

import hashlib
import os

import numpy as np
import torch
from numpy.typing import NDArray
from sqlmodel import Session, col, func, select

from app.errors import LetheError
from app.ledger.entries import parse_leaf
from app.service.context import Services
from models import ErasureRequest, Job, LogEntry, Model, RequestEvent
from workers.errors import ModelError
from workers.fedavg.base import ClientData
from workers.networks.files import decode_weights
from workers.replay.retraining import reexecute, start_digest
from workers.replay.scores import Scores, scores
from workers.tasks import claims, network_before
from workers.tasks.case import Case, Judge, Judged
from workers.tasks.lease import Lease
from workers.tasks.network_before import Before
from workers.tasks.network_config import NetworkConfig, network_config, policy_of
from workers.tasks.network_rows import Holdings, assemble, holdings, rows_digest, salts
from workers.tasks.network_sides import divide
from workers.tasks.network_state import TrainingState, decode_state
from workers.tasks.network_training import device_of, here
from workers.verifier.base import PurgeClaim, RetainedSetClaim
from workers.verifier.empirical import VERIFIER as EMPIRICAL
from workers.verifier.empirical_claim import EmpiricalClaim
from workers.verifier.exact_retrained import VERIFIER as RETRAINED
from workers.verifier.exact_retrained import RetrainedClaim

MOST_RETAINED = 2000  # rows of a sample: it tells an accuracy to two points


class OtherMachineError(LetheError):
    """The bits of this machine are not those of the training's; another may verify it."""

    slug, title, status = "other-machine", "Another machine must verify this", 503


def prepare(services: Services, session: Session, lease: Lease, case: Case) -> Judge:
    """Load what an executed job left of a network; the result judges it."""
    config = network_config(case.model)
    held = assemble(services, session, lease.model_id)
    ids = [record for one in held for record in one.block.records]
    rows = holdings(held, config)
    file = services.artifacts.get(session, case.after.head_id)
    sets = claims.retained_set(session, lease, case.plan, ids, case.before, case.after)
    purge = claims.purge(services, session, lease, case.plan, ids)
    if case.plan.claim == "exact-retrained":
        alike = _same_machine(services, case)
        if not alike and lease.rung > 0:
            raise OtherMachineError("verify on a machine like the one that trained")
        digest = rows_digest(rows, salts(session, lease.model_id))
        where = device_of(services)
        state = decode_state(services.artifacts.get(session, case.after.state_id))
        return lambda: _retrained(
            case, config, rows, file, digest, state, sets, purge, alike, where
        )
    job = session.exec(select(Job).where(Job.id == lease.job_id)).one()
    assert job.before_id is not None
    before = network_before.decode(services.artifacts.get(session, job.before_id))
    earlier, logged = _judged_before(session, case.model), _logged_policy(session, case.model)
    return lambda: _empirical(case, config, rows, file, before, earlier, logged, sets, purge)


def _same_machine(services: Services, case: Case) -> bool:
    """Return whether this process computes as the one that trained; silos cannot tell."""
    said = case.plan.parameters
    return all(said.get(name) in (value, "unknown") for name, value in here(services).items())


def _judged_before(session: Session, model: Model) -> int:
    """Return how often the model was judged: each time was a chance of a wrong PASS."""
    query = (
        select(func.count())
        .select_from(RequestEvent)
        .join(ErasureRequest, col(ErasureRequest.id) == col(RequestEvent.request_id))
        .where(ErasureRequest.model_id == model.id, RequestEvent.event == "request.verified")
    )
    return session.exec(query).one()


def _logged_policy(session: Session, model: Model) -> str:
    """Return the digest of the policy as the log has it: nobody can change it there."""
    query = (
        select(LogEntry.leaf)
        .where(LogEntry.event == "model.registered", LogEntry.ref == model.ref)
        .order_by(col(LogEntry.index))
    )
    registered = session.exec(query).first()
    return "" if registered is None else parse_leaf(registered).digests.get("policy", "")


def _retrained(
    case: Case,
    config: NetworkConfig,
    rows: Holdings,
    file: bytes,
    digest: str,
    state: TrainingState,
    sets: RetainedSetClaim,
    purge: PurgeClaim,
    alike: bool,
    device: torch.device,
) -> Judged:
    clients = divide(rows, ()).stays
    try:
        again = reexecute(config.network, clients, config.training, state.missing, device)
    except ModelError:
        again = ""  # the claimed training cannot be repeated: no digest is equal to it
    claim = RetrainedClaim(
        retained_set=sets,
        purge=purge,
        published_digest=case.after.head_digest,
        file_digest=hashlib.sha256(file).hexdigest(),
        reexecuted_digest=again,
        rounds=config.training.rounds,
        reexecuted_rounds=config.training.rounds,
        claimed_start=state.start,
        start=start_digest(config.network, config.training),
        claimed_data=case.after.statistics_digest,
        data=digest,
        # They are repeated as missing: nothing that a round needs is.
        answers_missing=0,
        environment_equal=alike,
    )
    details = {"rows": str(sum(len(data) for data in clients.values()))}
    return Judged(RETRAINED.id, RETRAINED.version, RETRAINED.verify(claim), details)


def _empirical(
    case: Case,
    config: NetworkConfig,
    rows: Holdings,
    file: bytes,
    before: Before,
    earlier: int,
    logged: str,
    sets: RetainedSetClaim,
    purge: PurgeClaim,
) -> Judged:
    # Only now: the digest of what is judged has been in the log since it was executed.
    seed = os.urandom(32)
    own = {str(item["record"]) for item in case.plan.removal["records"]}
    asked = np.array([record in own for record in before.records], dtype=np.bool_)
    forget, forget_clients = _some(before, asked & ~before.held)
    gone, gone_clients = _some(before, asked & before.held)
    pool = _joined([gone, *(r.held_out() for r in rows.values())])
    pool_clients = [gone_clients, *(_names(client, r.held) for client, r in rows.items())]
    retained = _sample(_joined([r.training() for r in rows.values()]), seed)

    def answers(model: bytes, data: ClientData | None) -> Scores:
        if data is None or config.network.task != "classification":
            return np.zeros((0, config.network.classes))  # no attack of ours reads masks
        return scores(model, config.network, data)

    policy = policy_of(case.model)
    claim = EmpiricalClaim(
        retained_set=sets,
        purge=purge,
        published_digest=case.after.head_digest,
        model=hashlib.sha256(file).hexdigest(),
        finite=_is_finite(file),
        forget_labels=_labels(config, forget),
        forget_clients=forget_clients,
        forget_before=answers(before.model, forget),
        forget_after=answers(file, forget),
        pool_labels=_labels(config, pool),
        pool_clients=np.concatenate(pool_clients),
        pool_before=answers(before.model, pool),
        pool_after=answers(file, pool),
        retained_labels=_labels(config, retained),
        retained_before=answers(before.model, retained),
        retained_after=answers(file, retained),
        policy=policy,
        policy_digest=logged,
        requests_before=earlier,
        seed=seed,
    )
    details = {"policy": logged, "seed": seed.hex()}
    return Judged(EMPIRICAL.id, EMPIRICAL.version, EMPIRICAL.verify(claim), details)


def _some(
    before: Before, mask: NDArray[np.bool_]
) -> tuple[ClientData | None, NDArray[np.str_]]:
    data = before.data.only(torch.from_numpy(mask)) if mask.any() else None
    return data, np.array(before.clients, dtype=np.str_)[mask]


def _names(client: str, held: NDArray[np.bool_]) -> NDArray[np.str_]:
    return np.full(int(held.sum()), client)


def _joined(parts: list[ClientData | None]) -> ClientData | None:
    there = [part for part in parts if part is not None]
    if not there:
        return None
    return ClientData(
        torch.cat([part.inputs for part in there]), torch.cat([part.targets for part in there])
    )


def _sample(data: ClientData | None, seed: bytes) -> ClientData | None:
    if data is None or len(data) <= MOST_RETAINED:
        return data
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(seed)))
    chosen = np.sort(rng.choice(len(data), MOST_RETAINED, replace=False))
    return data.only(torch.from_numpy(chosen))


def _labels(config: NetworkConfig, data: ClientData | None) -> NDArray[np.int64]:
    if data is None or config.network.task != "classification":
        return np.zeros(0, dtype=np.int64)
    found: NDArray[np.int64] = data.targets.numpy()
    return found


def _is_finite(file: bytes) -> bool:
    try:
        decode_weights(file)
    except ModelError:
        return False
    return True
