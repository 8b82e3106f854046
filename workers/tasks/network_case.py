"""What the verifiers of networks are given: rows, answers of both models, a training again."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from sqlmodel import Session, col, select

from app.errors import LetheError
from app.service.context import Services
from models import ErasureRequest, Job, Model, RequestEvent
from workers.errors import ModelError, RefusedError
from workers.fedavg.base import ClientData
from workers.networks.files import decode_weights
from workers.replay.retraining import most_missing, reexecute, start_digest
from workers.replay.scores import Scores, scores
from workers.tasks import claims, network_before, network_certified_case, network_releases
from workers.tasks.case import Case, Judge, Judged
from workers.tasks.lease import Lease
from workers.tasks.network_before import Before
from workers.tasks.network_config import NetworkConfig, network_config, policy_of
from workers.tasks.network_rows import (
    Holdings,
    assemble,
    holdings,
    row_digests,
    rows_digest,
    salts,
)
from workers.tasks.network_scores import chosen, committed, judged
from workers.tasks.network_sides import divide
from workers.tasks.network_state import TrainingState, decode_state
from workers.tasks.network_training import device_of, here
from workers.tasks.registered import Registered, registered
from workers.verifier.base import Check, PurgeClaim, Report, RetainedSetClaim
from workers.verifier.certified_logistic import VERIFIER as CERTIFIED
from workers.verifier.empirical import VERIFIER as EMPIRICAL
from workers.verifier.empirical_claim import EmpiricalClaim
from workers.verifier.exact_retrained import VERIFIER as RETRAINED
from workers.verifier.exact_retrained import RetrainedClaim
from workers.verifier.guard import ODD_INPUT

ID = "empirical-approximate"


class OtherMachineError(LetheError):
    """The bits of this machine are not those of the training's; another may verify it."""

    slug, title, status = "other-machine", "Another machine must verify this", 503


def prepare(
    services: Services, session: Session, lease: Lease, case: Case, seed: bytes
) -> Judge:
    """Load what an executed job left of a network; the result judges it.

    What cannot even be read is refuted: the judged must not be able to stop the judge.
    """
    judges = {one.id: one for one in (RETRAINED, CERTIFIED)}
    verifier = judges.get(case.plan.claim, EMPIRICAL)
    try:
        judge = _prepare(services, session, lease, case, seed)
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
    check = Check(1, "claim", value, None, "a model file, its state and its rows", False)
    return Judged(verifier, version, Report("FAIL", (check,)), {})


def _prepare(
    services: Services, session: Session, lease: Lease, case: Case, seed: bytes
) -> Judge:
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
        digests=digests,
        rows_after=rows_digest(digests.values()),
        rows_before=rows_digest([*digests.values(), *gone]),
        registered=registered(session, case.model),
    )
    if case.plan.claim == RETRAINED.id:
        alike = _same_machine(services, case)
        if not alike and lease.rung > 0:
            raise OtherMachineError("verify on a machine like the one that trained")
        device, silos = device_of(services), services.settings.silos
        state = decode_state(services.artifacts.get(session, case.after.state_id))
        return partial(_retrained, common, state, alike=alike, device=device, silos=silos)
    if case.plan.claim == CERTIFIED.id:
        noise = network_certified_case.load_noise(services, session, lease, common)
        return partial(network_certified_case.judge, common, noise)
    network_releases.made(session, case.model, case.after)
    if case.plan.claim != ID:
        raise RefusedError("nobody here judges such a claim")
    job = session.exec(select(Job).where(Job.id == lease.job_id)).one()
    if job.before_id is None:
        raise RefusedError("nothing was kept to compare with")
    before = network_before.decode(services.artifacts.get(session, job.before_id))
    return partial(_empirical, common, before, _judged_before(session, case.model), seed)


@dataclass(frozen=True, slots=True, eq=False)
class Common:
    """What all verifiers of networks are given.

    digests: of each stored row, by record. rows_*: recomputed digests of all rows.
    """

    case: Case
    config: NetworkConfig
    rows: Holdings
    file: bytes
    sets: RetainedSetClaim
    purge: PurgeClaim
    digests: Mapping[str, bytes]
    rows_after: str
    rows_before: str
    registered: Registered


def _same_machine(services: Services, case: Case) -> bool:
    """Return whether this process computes as the one that trained."""
    said = case.plan.parameters
    return all(said.get(name) == value for name, value in here(services).items())


def _judged_before(session: Session, model: Model) -> int:
    """Return how often the model was judged by chance: each time could pass it wrongly.

    A retraining that is repeated bit for bit leaves nothing to chance, and spends nothing.
    """
    query = (
        select(RequestEvent.payload)
        .join(ErasureRequest, col(ErasureRequest.id) == col(RequestEvent.request_id))
        .where(ErasureRequest.model_id == model.id, RequestEvent.event == "request.verified")
    )
    return sum(said.get("class") == ID for said in session.exec(query))


def _retrained(
    common: Common, state: TrainingState, *, alike: bool, device: torch.device, silos: int
) -> Judged:
    case, config = common.case, common.config
    clients = divide(common.rows, ()).stays
    training = config.training_of(clients)
    # In one process nobody is away: whoever was dropped is dropped again by the screening.
    missing = state.missing if silos else ()
    try:
        again = reexecute(config.network, clients, training, missing, device)
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


def _empirical(common: Common, before: Before, earlier: int, seed: bytes) -> Judged:
    case, config, rows = common.case, common.config, common.rows
    went = before.holdings(config.is_held_out)
    pinned = row_digests(went, dict(zip(before.records, before.salts, strict=True)))
    if sorted(digest.hex() for digest in pinned.values()) != sorted(case.plan.rows_gone):
        raise RefusedError("the rows to be tested are not those that went")
    own = {str(item["record"]) for item in case.plan.removal["records"]}
    forget, forget_clients = _part(went, own, held=False)
    unseen, unseen_clients = _part(went, own, held=True)
    pool = _joined([unseen, *(r.held_out() for r in rows.values())])
    pool_clients = [unseen_clients, *(_names(client, r.held) for client, r in rows.items())]
    retained = _sample(_joined([r.training() for r in rows.values()]), seed)

    def answers(model: bytes, data: ClientData | None) -> Scores:
        if data is None or config.network.task != "classification":
            return np.zeros((0, config.network.classes))  # no attack of ours reads masks
        return scores(model, config.network, data)

    claim = EmpiricalClaim(
        retained_set=common.sets,
        purge=common.purge,
        published_digest=case.after.head_digest,
        model=hashlib.sha256(common.file).hexdigest(),
        finite=_is_finite(common.file),
        forget_labels=_labels(config, forget),
        forget_clients=forget_clients,
        forget_before=answers(before.model, forget),
        forget_after=answers(common.file, forget),
        pool_labels=_labels(config, pool),
        pool_clients=np.concatenate(pool_clients),
        pool_before=answers(before.model, pool),
        pool_after=answers(common.file, pool),
        retained_labels=_labels(config, retained),
        retained_before=answers(before.model, retained),
        retained_after=answers(common.file, retained),
        policy=policy_of(case.model),
        policy_digest=common.registered.policy,
        requests_before=earlier,
        seed=seed,
        rows_before=(case.before.statistics_digest, common.rows_before),
        rows_after=(case.after.statistics_digest, common.rows_after),
        model_before=(case.before.head_digest, hashlib.sha256(before.model).hexdigest()),
    )
    details = {"policy": common.registered.policy, "seed": seed.hex()}
    tied = committed(rows, went, {**common.digests, **pinned}, own, seed)
    return judged(claim, tied, details)


def _part(
    rows: Holdings, records: Collection[str], *, held: bool
) -> tuple[ClientData | None, NDArray[np.str_]]:
    """Return those of some records that are held out, or that are not, with their clients."""
    parts: list[ClientData | None] = []
    names: list[str] = []
    for client, own in rows.items():
        mask = own.held if held else ~own.held
        mask = mask & np.array([record in records for record in own.records], dtype=np.bool_)
        if mask.any():
            parts.append(own.data.only(torch.from_numpy(mask)))
            names += [client] * int(mask.sum())
    return _joined(parts), np.array(names, dtype=np.str_)


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
    if data is None:
        return data
    return data.only(torch.from_numpy(chosen(len(data), seed)))


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
