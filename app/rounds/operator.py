"""An operator's side of a masked round: open, show, list, abort."""

import uuid
from datetime import timedelta
from hashlib import sha256
from math import ceil

from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event
from app.ledger.key_rows import believed
from app.ledger.transaction import Transaction
from app.problems import (
    ModelNotReadyError,
    NotFoundError,
    NotMaskedError,
    RoundMemberError,
    RoundOpenError,
    RoundStepError,
)
from app.reconcile.inputs import changed_since_received
from app.rounds.messages import plan_digest
from app.rounds.steps import (
    FEW,
    clients_of,
    expected,
    fail,
    is_open,
    members,
    message_id,
    senders,
)
from app.schemas.base import Page
from app.schemas.requests import Scope
from app.schemas.rounds import STEPS, NewRound, RoundView
from app.service.context import Services
from app.service.models.registry import present
from app.service.paging import page_of
from app.service.queue import PARKED
from app.service.requests import close
from app.service.review import HELD, unapproved
from app.service.scope import forget_set
from lethe import canonical
from lethe.catalogue import data_of
from models import ErasureRequest, Job, Model, RequesterKey, Round, RoundMember

OPEN = (*STEPS, "summing")
POLLS = 10  # a second, of all members together: as in workers.secure_sum.client.join


def open_round(services: Services, wanted: NewRound) -> RoundView:
    """Open a round on a masked model and fix its plan, members and requests.

    Waiting erasure requests are released in it if all clients that hold their records are
    members; the others wait for another round.

    Raises:
        UnknownModelError: No such model.
        NotMaskedError: The model takes no masked rounds.
        ModelNotReadyError: The model is quarantined.
        RoundOpenError: The model has a round that has not ended.
        RoundMemberError: A member cannot take part, the threshold is not a strict majority, or
            a step is too short for so many.
    """

    def effect(tx: Transaction) -> RoundView:
        model = present(tx.session, wanted.model)
        if not data_of(model.config).in_rounds:
            raise NotMaskedError("this model is not masked: clients contribute to it directly")
        if model.state not in ("registered", "ready"):
            raise ModelNotReadyError("the model is out of service: see its failure")
        busy = select(Round.id).where(Round.model_id == model.id, col(Round.state).in_(OPEN))
        if tx.session.exec(busy).first() is not None:
            raise RoundOpenError("the model has an open round: wait for its end")
        row = _open(services, tx, model, wanted)
        return view(tx.session, row)

    return services.ledger.transact(effect)


def _open(services: Services, tx: Transaction, model: Model, wanted: NewRound) -> Round:
    assert model.id is not None
    clients = client_keys(tx.session, wanted.members)
    names = sorted(clients)
    threshold = wanted.threshold or len(names) // 2 + 1
    if not len(names) < 2 * threshold <= 2 * len(names):
        raise RoundMemberError(
            f"the threshold of {len(names)} members is {len(names) // 2 + 1} to {len(names)}: "
            "with a smaller one a dishonest server could read single inputs"
        )
    needed = ceil(2 * len(names) / POLLS)
    if len(names) > POLLS and wanted.step_seconds < needed:
        raise RoundMemberError(
            f"of {len(names)} members each polls every {len(names) / POLLS:g} s, and could "
            f"miss a step: give a step at least {needed} seconds"
        )
    round_id = str(uuid.uuid4())
    requests, left_out = _waiting(services, tx, model, set(clients.values()))
    plan = {
        "classes": len(model.classes),
        "configuration": configuration(model),
        "dimension": model.config["dimension"],
        "kind": "lethe/round-plan/v1",
        "least_contributors": model.config["masked"]["contributors"],
        "least_rows": model.config["masked"]["rows"],
        "members": names,
        "model": model.ref,
        "round": round_id,
        "threshold": threshold,
        "version": model.current_version or 0,
    }
    warnings = []
    if len(names) < FEW:
        warnings.append("fewer than 3 members: each can compute what the other sent")
    if left_out:
        warnings.append(
            f"{left_out} waiting erasure requests concern clients that are not in this round"
        )
    index = record_model_event(tx, model.ref, "round.opened", {"plan": plan_digest(plan)})
    row = Round(
        id=round_id,
        model_id=model.id,
        plan=plan,
        threshold=threshold,
        step_seconds=wanted.step_seconds,
        step_until=tx.now + timedelta(seconds=wanted.step_seconds),
        requests=requests,
        warnings=warnings,
        log_index=index,
        created_at=tx.now,
    )
    tx.session.add(row)
    tx.session.flush()
    for keyid, client in clients.items():
        tx.session.add(RoundMember(round_id=round_id, keyid=keyid, client=client))
    tx.session.flush()
    return row


def configuration(model: Model) -> str:
    """Return the hex SHA-256 of the configuration by which clients compute statistics."""
    used = {
        "bits": model.config["bits"],
        "classes": model.classes,
        "exponents": model.config["exponents"],
        "extractor": model.extractor,
        "ref": model.ref,
    }
    if "features" in model.config:
        used["features"] = model.config["features"]
    return sha256(canonical.encode(used)).hexdigest()


def client_keys(session: Session, keyids: list[str]) -> dict[str, str]:
    """Return the client of each key."""
    clients: dict[str, str] = {}
    for keyid in keyids:
        key = believed(session, RequesterKey, keyid)
        if key is None or key.revoked_at is not None or key.role != "client":
            raise RoundMemberError("a member is not a registered key of role client")
        if key.client is None or key.subject is not None:
            raise RoundMemberError(
                "a member's key must be bound to a client, and to no subject"
            )
        clients[keyid] = key.client
    if len(clients) != len(keyids) or len(set(clients.values())) != len(keyids):
        raise RoundMemberError(
            "each member has one key, and each key belongs to another client"
        )
    return clients


def _waiting(
    services: Services, tx: Transaction, model: Model, clients: set[str]
) -> tuple[dict[str, list[str]], int]:
    """Return the records by request that this round releases, and the number left out."""
    assert model.id is not None
    session = tx.session
    parked = (
        select(Job)
        .where(Job.model_id == model.id, Job.kind == "erase", Job.stage == PARKED)
        .order_by(col(Job.seq))
    )
    released: dict[str, list[str]] = {}
    taken: set[str] = set()
    left_out = 0
    for job in session.exec(parked).all():
        request = session.get_one(ErasureRequest, job.request_id)
        ledger, asked = services.ledger, [request]
        if (
            request.state in HELD
            or unapproved(ledger, session, model, asked, tx.now)
            or changed_since_received(ledger, session, model, asked)
        ):
            continue
        scope = Scope.model_validate(request.scope)
        found = [
            record.record for record in forget_set(session, model.id, scope, request.id, taken)
        ]
        request = session.get_one(ErasureRequest, job.request_id)
        holders = clients_of(session, model.id, found)
        if not holders:
            reason = "an earlier request erased all that this one asks for"
            close(services, tx, request, job, "refused", reason)
        elif holders <= clients:
            released[request.id] = found
            taken.update(found)
        else:
            left_out += 1
    session.flush()
    return released, left_out


def abort(services: Services, round_id: str) -> RoundView:
    """End an open round. Its erasure requests wait for another round.

    Raises NotFoundError: no such round; RoundStepError: the round has ended, or its sum is
    being added.
    """

    def effect(tx: Transaction) -> RoundView:
        row = _find(tx.session, round_id)
        if not is_open(row):
            raise RoundStepError(
                "the round has ended, or its sum is being added: see its state"
            )
        fail(services, tx, row, "aborted: an operator ended the round; nothing was changed")
        return view(tx.session, row)

    return services.ledger.transact(effect)


def find_view(session: Session, round_id: str) -> RoundView:
    """Return one round as an operator sees it. Raises NotFoundError: no such round."""
    return view(session, _find(session, round_id))


def _find(session: Session, round_id: str) -> Round:
    row = session.get(Round, round_id)
    if row is None:
        raise NotFoundError("no round has this id")
    return row


def page(session: Session, after: str | None, limit: int) -> Page[RoundView]:
    """Return a page of rounds, ordered by id."""
    return page_of(
        session, select(Round), Round.id, after, limit, lambda row: view(session, row)
    )


def view(session: Session, row: Round) -> RoundView:
    """Return a round as an operator sees it."""
    rows = members(session, row.id)
    return RoundView(
        id=row.id,
        model=session.get_one(Model, row.model_id).ref,
        state=row.state,
        reason=row.reason,
        members=len(rows),
        threshold=row.threshold,
        sent={step: len(senders(rows, step)) for step in STEPS},
        waits_for=[
            member.keyid
            for member in (expected(rows, row.state) if is_open(row) else [])  # type: ignore[arg-type]
            if message_id(member, row.state) is None  # type: ignore[arg-type]
        ],
        step_until=row.step_until,
        requests=len(row.requests),
        warnings=row.warnings,
        log_index=row.log_index,
        created_at=row.created_at,
        closed_at=row.closed_at,
    )
