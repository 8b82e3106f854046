"""What clients and operators do while a fault strikes, and again after it.

Each workload may be interrupted anywhere and done again from its start, as its client would:
with the same idempotency key, or the same call. It reports what it was told is done, as (kind,
value).
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from httpx2 import Response
from sqlalchemy import update
from sqlmodel import Session, col, select

from app.backup.archive import write_backup
from app.keys.log import logged_keys
from app.keys.rotate import rotate_issuer
from app.keys.rotate_log import revoke_log, rotate_log
from app.problems import ConflictError
from lethe.signing.keys import PrivateKey, public_pem
from models import ErasureRequest, Job, Model
from models.database.types import utcnow
from tests.installation import Installation
from tests.small import MODEL, manifest, pack, rows

Told = Callable[[str, Any], None]
TRIES = 4  # of a client that gets no answer, or one that says "later"
SWEEPS = 8  # until a worker's queue must be empty
OTHER = "second"  # a model that a workload registers
BATCH = (("r1",), ("r2", "r6"), ("r3",))


class StuckError(Exception):
    """A client was refused what it may do, or was not answered in TRIES tries."""


@dataclass(frozen=True)
class Workload:
    """Something that is done, and when it has ended.

    records: that are erased in the end. requests: how many are stored in the end.
    """

    name: str
    act: Callable[[Installation, Told], None]
    ended: Callable[[Session], bool]
    records: int = 0
    requests: int = 0
    state: str = "certified"  # that the requests end in
    settings: dict[str, Any] = field(default_factory=dict)
    work: bool = True  # a worker runs beside it


def work(made: Installation, workload: Workload) -> None:
    """Be a worker with its schedule until the workload has ended, for SWEEPS sweeps at most.

    An error ends a task, not the worker: it is logged, and the next sweep comes.
    """
    for _ in range(SWEEPS):
        with suppress(Exception):
            made.drain()
        with suppress(Exception):
            end_leases(made)
            made.dispatcher.nudges.clear()
            made.dispatcher.sweep(made.services)
        with suppress(Exception), made.services.reading() as session:
            if workload.ended(session):
                return


def end_leases(made: Installation) -> None:
    """Let time pass: leases end, and nudges that were on their way are late."""
    past = utcnow().replace(year=2020)
    with Session(made.services.engine) as session:
        connection = session.connection()
        connection.execute(update(Job).values(created_at=past))
        held = col(Job.lease_until).is_not(None)
        connection.execute(update(Job).where(held).values(lease_until=past))
        session.commit()


def answered(call: Callable[[], Response], *good: int) -> Response:
    """Call until the answer has one of these statuses. Raises StuckError."""
    seen: Any = None
    for attempt in range(TRIES):
        try:
            answer = call()
        except Exception as error:  # the process would have logged it and closed the connection
            seen = repr(error)
        else:
            if answer.status_code in good:
                return answer
            seen = answer.status_code, answer.text[:300]
            if answer.status_code < 500:
                break
        time.sleep(0.01 * attempt)
    raise StuckError(str(seen))


def submitted(made: Installation, told: Told, records: tuple[str, ...]) -> str:
    """Submit one request until it is acknowledged; return its id."""
    once = {"idempotency-key": "-".join(records)}
    accepted = answered(lambda: made.caller.erase_records(*records, headers=once), 202).json()
    receipt = accepted["receipt"]
    told("request", [accepted["id"], receipt["log_index"], receipt["leaf"]])
    return str(accepted["id"])


def _erase(made: Installation, told: Told) -> None:
    submitted(made, told, ("r1", "r2"))


def _batch(made: Installation, told: Told) -> None:
    for records in BATCH:
        submitted(made, told, records)


def _withdraw(made: Installation, told: Told) -> None:
    request_id = submitted(made, told, ("r1", "r2"))
    answered(lambda: made.caller.signed("DELETE", f"/v1/requests/{request_id}"), 200)
    told("withdrawn", request_id)


def _register(made: Installation, told: Told) -> None:
    def call() -> Response:
        return made.caller.operator(
            "POST",
            "/v1/models",
            files={"data": ("rows.npz", pack(rows()))},
            data={"manifest": json.dumps(manifest(ref=OTHER))},
        )

    answered(call, 200, 201)
    told("model", OTHER)


def _delete(made: Installation, told: Told) -> None:
    deleted = answered(lambda: made.caller.operator("DELETE", f"/v1/models/{MODEL}"), 200)
    told("deleted", deleted.json()["log_index"])


def _key(made: Installation, told: Told) -> None:
    body = {
        "keyid": "another",
        "algorithm": "ed25519",
        "public_key": public_pem(_fixed_key()),
        "role": "requester",
    }
    registered = answered(
        lambda: made.caller.operator("POST", "/v1/keys", json=body), 200, 201, 409
    )
    if registered.status_code != 409:  # it was registered, and revoked, before the fault
        told("key", "another")
    answered(lambda: made.caller.operator("DELETE", "/v1/keys/another"), 200)
    told("revoked", "another")


def _fixed_key() -> PrivateKey:
    """Return the same key each time: a client that sends again sends the same."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def _rotate(made: Installation, told: Told) -> None:
    for _ in range(TRIES):
        try:
            rotated = rotate_issuer(made.settings, made.services.ledger, "issuer-2")
        except ConflictError:  # it was finished before the fault
            told("rotated", "issuer-2")
            return
        except Exception:
            continue
        told("rotated", rotated.key.keyid)
        return
    raise StuckError("the key was not rotated")


def _rotate_log(made: Installation, told: Told) -> None:
    """Replace the log's key: both sign, then the older one is revoked."""
    settings, ledger = made.settings, made.services.ledger
    for _ in range(TRIES):
        with suppress(Exception):
            known = logged_keys(ledger).keys
            if len(known) == 1 or known[-2].revoked is None:
                with suppress(ConflictError):  # two keys sign already
                    rotate_log(settings, ledger)
            with suppress(ConflictError):  # one signs alone: it was finished before the fault
                revoke_log(settings, ledger, "superseded")
            told("log-rotated", None)
            return
    raise StuckError("the log's key was not rotated")


def _backup(made: Installation, told: Told) -> None:
    for _ in range(TRIES):
        number = sum(1 for _ in made.settings.data_dir.glob("backup-*"))
        folder = made.settings.data_dir / f"backup-{number}"
        with suppress(Exception):
            write_backup(made.settings, made.services.engine, folder, Path(f"{folder}-keys"))
            told("backup", folder.name)
            return
    raise StuckError("no backup was written")


def _requests_ended(number: int, state: str) -> Callable[[Session], bool]:
    def ended(session: Session) -> bool:
        return session.exec(select(ErasureRequest.state)).all() == [state] * number

    return ended


def _is_ready(session: Session) -> bool:
    return session.exec(select(Model.state).where(Model.ref == OTHER)).first() == "ready"


def _at_once(_: Session) -> bool:
    return True


_WAITING = {"batch_min_requests": 3, "batch_max_wait_seconds": 3600}
WORKLOADS = {
    one.name: one
    for one in (
        Workload("erase", _erase, _requests_ended(1, "certified"), 2, 1),
        Workload("batch", _batch, _requests_ended(3, "certified"), 4, 3, settings=_WAITING),
        Workload(
            "withdraw",
            _withdraw,
            _requests_ended(1, "withdrawn"),
            0,
            1,
            "withdrawn",
            work=False,
        ),
        Workload("register", _register, _is_ready),
        Workload("delete", _delete, _at_once, work=False),
        Workload("key", _key, _at_once, work=False),
        Workload("rotate", _rotate, _at_once, work=False),
        Workload("rotate-log", _rotate_log, _at_once, work=False),
        Workload("backup", _backup, _at_once, work=False),
    )
}
