"""Masked rounds: members that keep their own records, from the first sum to a certificate.

What a member masks its input with lives in its process and dies with it. Whoever starts again
is taken for one that has dropped out; the round ends without it, and the next one is opened.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import update
from sqlmodel import Session, col, func, select

from app.settings import Settings
from benchmarks.faults.clients import answered, submitted
from benchmarks.faults.workload import StuckError, Told, work_once
from lethe.signing.keys import PrivateKey, public_of
from models import ErasureRequest, LogEntry, Model, Record, Round, Subject
from models.database.types import utcnow
from tests.installation import Installation
from tests.small import Caller, manifest, rows
from workers.errors import RefusedError
from workers.secure_sum.client.join import ENDED, Joining
from workers.secure_sum.client.record import Least, open_record
from workers.secure_sum.client.record import Record as MemberRecord
from workers.secure_sum.client.service import RoundClient
from workers.secure_sum.local import LocalRows

MODEL = "masked"
MEMBERS = ("m0", "m1", "m2")
RECORDS = ("r1", "r3")
FOLDER = "members"  # below the data folder: faults strike their records, too
ROUNDS = 5  # until a sum must be there
STEPS = 5
LOCKED_S = 20.0  # that another process may hold the members' records for


def enrolled(made: Installation) -> None:
    """Register the members' keys, and a model that only sums of theirs reach."""
    (made.settings.data_dir / FOLDER).mkdir()
    for member in MEMBERS:
        made_key = _caller(made, member).register_key(role="client", client=member)
        assert made_key.status_code == 201, made_key.text
    least = {"contributors": 1, "rows": 1}
    wanted = manifest(ref=MODEL, data="masked", masked=least)
    files = {"manifest": (None, json.dumps(wanted))}
    answer = made.caller.operator("POST", "/v1/models", files=files)
    assert answer.status_code == 201, answer.text


def learn_and_erase(made: Installation, told: Told) -> None:
    """Sum all rows in one round; ask for an erasure, and release its records in another."""
    _until(made, is_published)
    submitted(made, told, RECORDS, MODEL)
    _until(made, is_erased)
    told("summed", MODEL)


def is_published(session: Session) -> bool:
    """Return whether the model has a version."""
    return session.exec(select(Model.state).where(Model.ref == MODEL)).one() == "ready"


def is_erased(session: Session) -> bool:
    """Return whether the request is certified."""
    return session.exec(select(ErasureRequest.state)).all() == ["certified"]


def why_unsummed(settings: Settings, session: Session) -> str | None:
    """Return how rounds, log and members' records disagree; None if they do not."""
    model = session.exec(select(Model).where(Model.ref == MODEL)).one()
    events = select(func.count()).where(LogEntry.event == "round.summed")
    done = session.exec(select(func.count()).where(Round.state == "done")).one()
    if done != (logged := session.exec(events).one()):
        return f"{done} rounds are done, and the log has {logged} sums"
    for member in MEMBERS:
        query = (
            select(Record.record)
            .join(Subject, col(Subject.id) == col(Record.subject_id))
            .where(Record.model_id == model.id, Subject.client_tag == member)
        )
        held = set(session.exec(query))
        with open_record(_path(settings, member)) as record:
            known = record.models.get(MODEL, {"held": []})
            if record.unsettled(MODEL) or set(known["held"]) != held:
                return f"{member} has another record of what it added than the service"
    return None


def _until(made: Installation, ended: Callable[[Session], bool]) -> None:
    """Open rounds, and have all members join them, until `ended`; settle their records."""
    with _records(made.settings) as records:
        for _ in range(ROUNDS):
            work_once(made)
            with made.services.reading() as session:
                if ended(session):
                    _settle(made, records)
                    return
            with suppress(Exception):  # as each member's command: it says so, and ends
                _run(made, _open(made), records)
    raise StuckError(f"no sum was published in {ROUNDS} rounds")


def _open(made: Installation) -> str:
    """Return the round that is open, or open one."""
    wanted = {"model": MODEL, "members": list(MEMBERS)}
    answered(lambda: made.caller.operator("POST", "/v1/rounds", json=wanted), 201, 409)
    with made.services.reading() as session:
        query = select(Round.id).where(col(Round.state).not_in(ENDED))
        return session.exec(query).one()


def _run(made: Installation, round_id: str, records: dict[str, MemberRecord]) -> None:
    joining = [_joining(made, round_id, one, record) for one, record in records.items()]
    for _ in range(STEPS):
        for one in joining:
            with suppress(Exception):
                one.step()
    made.drain()
    for one in joining:
        with suppress(Exception):
            one.step()  # each learns how it ended
    _end_step(made, round_id)


def _end_step(made: Installation, round_id: str) -> None:
    """Let time pass: a step that still waits for members ends without them."""
    with Session(made.services.engine) as session:
        past = utcnow().replace(year=2020)
        session.connection().execute(
            update(Round).where(col(Round.id) == round_id).values(step_until=past)
        )
        session.commit()
    work_once(made)


def _settle(made: Installation, records: dict[str, MemberRecord]) -> None:
    """Have members that died before a round's end learn how it ended."""
    for member, record in records.items():
        for round_id in record.unsettled(MODEL) if MODEL in record.models else ():
            record.ended(MODEL, _service(made, member).work(round_id))


@contextmanager
def _records(settings: Settings) -> Iterator[dict[str, MemberRecord]]:
    """Open the members' records: only one process at a time may take part with them."""
    until = time.monotonic() + LOCKED_S
    with ExitStack() as stack:
        found: dict[str, MemberRecord] = {}
        for member in MEMBERS:
            while member not in found:
                try:
                    opened = stack.enter_context(open_record(_path(settings, member)))
                except (OSError, RefusedError) as error:
                    if time.monotonic() > until:
                        raise StuckError(repr(error)) from None
                    time.sleep(0.05)
                else:
                    found[member] = opened
        yield found


def _joining(made: Installation, round_id: str, member: str, record: MemberRecord) -> Joining:
    roster = {one: public_of(_key(one)) for one in MEMBERS}
    return Joining(
        _service(made, member),
        round_id,
        member,
        _key(member),
        roster,
        _rows(member),
        record,
        least=Least(1, 1),
    )


def _service(made: Installation, member: str) -> RoundClient:
    http = made.caller.http
    return RoundClient(str(http.base_url), member, _key(member), transport=http._transport)


def _rows(member: str) -> LocalRows:
    """Return a member's rows: every third of all."""
    arrays, first = rows(), MEMBERS.index(member)
    records = arrays["records"][first :: len(MEMBERS)].tolist()
    owners = [member] * len(records)
    return LocalRows(
        arrays["features"][first :: len(MEMBERS)],
        arrays["labels"][first :: len(MEMBERS)],
        owners,
        records,
        owners,
    )


def _caller(made: Installation, member: str) -> Caller:
    return Caller(made.caller.http, made.caller.token, member, _key(member))


def _key(member: str) -> PrivateKey:
    """Return the same key each time."""
    return Ed25519PrivateKey.from_private_bytes(bytes([MEMBERS.index(member) + 1]) * 32)


def _path(settings: Settings, member: str) -> Path:
    return settings.data_dir / FOLDER / f"{member}.json"
