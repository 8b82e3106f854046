"""A member's side of a masked round: its view of the round and the messages it sends."""

from base64 import b64encode
from hashlib import sha256
from typing import Any

from sqlmodel import Session, col, select

from app import traces
from app.ledger.journal import record_model_event
from app.ledger.transaction import Transaction
from app.problems import (
    ConflictError,
    NotFoundError,
    RoundDuplicateError,
    RoundMessageError,
    RoundMismatchError,
    RoundReleaseError,
    RoundStepError,
)
from app.reconcile.model_events import ARRIVED, MESSAGE
from app.rounds.messages import StepMessage, decoded, read_message
from app.rounds.steps import (
    advance_round,
    expected,
    is_open,
    is_waiting,
    members,
    message_id,
    requested_releases,
    senders,
)
from app.schemas.requests import Scope
from app.schemas.rounds import (
    STEPS,
    Body,
    Confirmed,
    Masked,
    Revealed,
    RoundNotice,
    RoundWork,
    Shared,
    Statement,
    Step,
)
from app.service.context import Services
from app.service.scope import has_tombstone, holds_any
from app.service.signatures import current_key
from app.settings import Settings
from app.vault.master import open_tombstone_key
from lethe import canonical
from lethe.identity import WIDTH
from lethe.signing.http import SignedBy
from lethe.signing.keys import load_public_key
from models import Artifact, ErasureRequest, Model, Record, Round, RoundMember, Subject
from models.database.session import chunks
from models.database.types import clock

PAGE = 100


def waiting_for(services: Services, signed: SignedBy) -> list[RoundNotice]:
    """Return the open rounds of the signing key, oldest first."""
    with services.reading() as session:
        key = current_key(session, signed, "client")
        query = (
            select(Round, Model.ref)
            .join(RoundMember, col(RoundMember.round_id) == col(Round.id))
            .join(Model, col(Model.id) == col(Round.model_id))
            .where(RoundMember.keyid == key.keyid, col(Round.state).in_(STEPS))
            .order_by(col(Round.created_at), col(Round.id))
            .limit(PAGE)
        )
        return [
            RoundNotice(id=row.id, model=ref, state=row.state, until=row.step_until)
            for row, ref in session.exec(query).all()
        ]


def work(services: Services, signed: SignedBy, round_id: str) -> RoundWork:
    """Return a round as the signing member sees it, after ending steps whose time is over.

    Up to a hundred members poll while they wait: only a poll that finds the step over takes the
    log's turn.

    Raises NotFoundError: no such round, or the key is not a member of it.
    """
    with services.reading() as session:
        key = current_key(session, signed, "client")
        row, member = _member(session, round_id, key.keyid)
        if is_waiting(services, session, row, clock(session)):
            return _work(services, session, row, member)

    def effect(tx: Transaction) -> tuple[RoundWork, str | None]:
        key = current_key(tx.session, signed, "client")
        row, member = _member(tx.session, round_id, key.keyid)
        job = advance_round(services, tx, row)
        return _work(services, tx.session, row, member), job

    shown, job_id = services.ledger.transact(effect)
    if job_id is not None:
        traces.queued(job_id, "round")
        services.dispatcher.nudge(job_id)
    return shown


def _work(services: Services, session: Session, row: Round, member: RoundMember) -> RoundWork:
    rows = members(session, row.id)
    shown: dict[str, Any] = {}
    taking_part = is_open(row) and member in expected(rows, row.state)  # type: ignore[arg-type]
    if taking_part and row.state == "share":
        shown["advertised"] = [
            _message(services, session, peer, "advertise").decode()
            for peer in senders(rows, "advertise")
        ]
    if taking_part and row.state == "masked":
        shown["sealed"] = {
            peer.keyid: canonical.decode(_message(services, session, peer, "share"))["body"][
                "shares"
            ][member.keyid]
            for peer in senders(rows, "share")
            if peer.keyid != member.keyid
        }
        shown["release"] = requested_releases(session, row, member.client)
        shown["held"] = _held(session, row, member)
    if taking_part and row.state == "confirm":
        shown["statements"] = [peer.statement for peer in senders(rows, "masked")]
    if taking_part and row.state == "reveal":
        shown["confirmed"] = [
            _message(services, session, peer, "confirm").decode()
            for peer in senders(rows, "confirm")
        ]
    return RoundWork(
        id=row.id,
        model=session.get_one(Model, row.model_id).ref,
        plan=row.plan,
        state=row.state,
        reason=row.reason,
        member=taking_part or not is_open(row),
        until=row.step_until,
        warnings=row.warnings,
        counted=row.state == "done" and member.masked_id is not None,
        **shown,
    )


def read(
    services: Services, signed: SignedBy, round_id: str, step: Step, body: bytes
) -> StepMessage:
    """Return a member's message for a step, after checking it and its statement on their own.

    Raises:
        KeyUnknownError: The key was revoked since the signature was checked.
        NotFoundError: No such round, or the key is not a member of it.
        RoundMessageError: As `read_message`.
    """
    with services.reading() as session:
        row, _ = _member(session, round_id, signed.keyid)
        signer = current_key(session, signed, "client")
        key = load_public_key(signer.public_key.encode())
    author: dict[str, Any] = {"plan": row.plan, "keyid": signed.keyid, "key": key}
    message = read_message(body, step=step, **author)
    if isinstance(message.body, Masked):
        _check_size(message.body, services.settings)
        stated = read_message(message.body.statement.encode(), step="statement", **author)
        _check_statement(message.body, stated.body)
    return message


def send(
    services: Services, signed: SignedBy, round_id: str, step: Step, message: StepMessage
) -> str:
    """Store a member's message for a step; return the round's state. Idempotent.

    Raises:
        NotFoundError: No such round, or the key is not a member of it.
        RoundStepError: The round is at another step, or continues without this member.
        RoundDuplicateError: A different message was sent for this step before.
        RoundMessageError: The message does not fit the step.
        ConflictError: A record to add is in the training set or was erased from it.
    """

    def effect(tx: Transaction) -> tuple[str, str | None]:
        signer = current_key(tx.session, signed, "client")
        row, member = _member(tx.session, round_id, signer.keyid)
        earlier = message_id(member, step)
        if earlier is not None:
            if tx.session.get_one(Artifact, earlier).digest != sha256(message.data).hexdigest():
                raise RoundDuplicateError(
                    "another message was sent for this step: it is not replaced"
                )
            return row.state, advance_round(services, tx, row)
        job = advance_round(services, tx, row)
        rows = members(tx.session, row.id)
        if row.state != step or member not in expected(rows, step):
            raise RoundStepError(
                "the round is at another step, or continues without this member"
            )
        _check(services, tx.session, row, rows, member, message)
        stored = services.artifacts.put(tx.session, "round-message", message.data)
        setattr(member, f"{step}_id", stored.id)
        if isinstance(message.body, Masked):
            # Until the round ends, no lookup of a person overlooks it, whatever the tables say.
            ref = tx.session.get_one(Model, row.model_id).ref
            record_model_event(tx, ref, ARRIVED, {MESSAGE: stored.digest})
            member.moved = len(message.body.adds) + len(message.body.releases)
            member.statement = message.body.statement
        tx.session.flush()
        job = advance_round(services, tx, row) or job
        return row.state, job

    state, job_id = services.ledger.transact(effect)
    if job_id is not None:
        traces.queued(job_id, "round")
        services.dispatcher.nudge(job_id)
    return state


def _check(
    services: Services,
    session: Session,
    row: Round,
    rows: list[RoundMember],
    member: RoundMember,
    message: StepMessage,
) -> None:
    """Check a message against the remaining members and against the model."""
    names = [{peer.keyid for peer in senders(rows, step)} for step in STEPS]
    match message.body:
        case Shared(shares=shares):
            fits = set(shares) == names[0] - {member.keyid}
        case Masked() as body:
            fits = body.peers == sorted(names[1]) and _body(body.statement)["seen"] == _seen(
                services, session, rows, names[1]
            )
            _check_records(services, session, row, member, body)
        case Confirmed(statements=digest):
            bodies = {peer.keyid: _body(peer.statement) for peer in senders(rows, "masked")}
            fits = digest == _digest_text(canonical.encode(bodies))
        case Revealed() as body:
            fits = set(body.self_) == names[2] and set(body.mask) == names[1] - names[2]
        case _:
            fits = True
    if not fits:
        raise RoundMismatchError(
            "the message is for other members than take part now: the masks would not cancel"
        )


def _check_size(body: Masked, settings: Settings) -> None:
    """Check the additions, as of a contribution: nobody else writes while they are stored.

    Raises RoundMessageError: there are too many, or too many subjects.
    """
    most = settings.max_contribution_rows
    if len(body.adds) > most:
        raise RoundMessageError(f"a member adds at most {most} records: join several rounds")
    subjects = len({one.subject for one in body.adds})
    if subjects > (most := settings.max_contribution_owners):
        raise RoundMessageError(
            f"a member adds records of at most {most} subjects: join several rounds, each with "
            "a part of the rows"
        )


def _check_statement(body: Masked, stated: Body) -> None:
    assert isinstance(stated, Statement)
    counts = (stated.added, stated.released, stated.input)
    if counts != (len(body.adds), len(body.releases), _digest_text(decoded(body.vector))):
        raise RoundMismatchError(
            "the statement is not about the masked input that it came with: send "
            "what the client wrote"
        )


def _seen(
    services: Services, session: Session, rows: list[RoundMember], peers: set[str]
) -> str:
    """Return the digest of what a member must have seen: advertised keys and its peers."""
    advertised = {
        peer.keyid: _body(_message(services, session, peer, "advertise").decode())
        for peer in senders(rows, "advertise")
    }
    return _digest_text(canonical.encode({"advertised": advertised, "peers": sorted(peers)}))


def _body(message: str | None) -> dict[str, Any]:
    assert message is not None
    found: dict[str, Any] = canonical.decode(message.encode())["body"]
    return found


def _digest_text(data: bytes) -> str:
    return b64encode(sha256(data).digest()).decode()


def _check_records(
    services: Services, session: Session, row: Round, member: RoundMember, body: Masked
) -> None:
    adds = [item.record for item in body.adds]
    if any(len(decoded(text)) != WIDTH * len(adds) for text in body.people.values()):
        raise RoundMessageError(
            f"people: each kind must have {WIDTH} bytes of digests for each added record"
        )
    if len({*adds, *body.releases}) != len(adds) + len(body.releases):
        raise RoundReleaseError("a record is named twice: add or release it once")
    if sorted(body.releases) != requested_releases(session, row, member.client):
        raise RoundReleaseError("release exactly the records that the round asks for")
    subjects = {item.subject for item in body.adds}
    if any(_erases_owner(session, request_id, member, subjects) for request_id in row.requests):
        raise RoundReleaseError(
            "this round erases all records of an owner for whom it also adds records: add "
            "those in a later round"
        )
    model = session.get_one(Model, row.model_id)
    tombstone_key = open_tombstone_key(services.root_secret, model)
    for chunk in chunks(adds):
        if holds_any(session, model.id, chunk) or has_tombstone(
            session, model.id, tombstone_key, chunk
        ):
            raise ConflictError(
                "a record id is in the training set or was erased from it: use new ids"
            )


def _erases_owner(
    session: Session, request_id: str, member: RoundMember, subjects: set[str]
) -> bool:
    """Return whether a request erases everything of an owner whose records are being added."""
    scope = Scope.model_validate(session.get_one(ErasureRequest, request_id).scope)
    if scope.records is not None or scope.client not in (None, member.client):
        return False
    return bool(subjects) if scope.subject is None else scope.subject in subjects


def _member(session: Session, round_id: str, keyid: str) -> tuple[Round, RoundMember]:
    row, member = session.get(Round, round_id), session.get(RoundMember, (round_id, keyid))
    if row is None or member is None:
        raise NotFoundError("no round of this id names this key: GET /v1/rounds/asked")
    return row, member


def _message(services: Services, session: Session, member: RoundMember, step: Step) -> bytes:
    artifact = message_id(member, step)
    assert artifact is not None
    return services.artifacts.get(session, artifact)


def _held(session: Session, row: Round, member: RoundMember) -> list[str]:
    query = (
        select(Record.record)
        .join(Subject, col(Subject.id) == col(Record.subject_id))
        .where(Record.model_id == row.model_id, Subject.client_tag == member.client)
    )
    return sorted(session.exec(query))
