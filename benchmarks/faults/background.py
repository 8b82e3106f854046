"""What threads of a worker do beside its tasks: send notices, ask witnesses."""

from datetime import timedelta

from sqlalchemy import update
from sqlmodel import Session, col, select

from app.notices import post
from app.notices.events import DELIVERED
from app.notices.sender import Sender
from app.settings import Settings
from app.witnesses.gather import Gatherer
from app.witnesses.policy import load_policy
from app.witnesses.rows import Rows
from benchmarks.faults.clients import submitted
from benchmarks.faults.workload import StuckError, Told, tried
from lethe.witness.home import create
from models import Delivery
from tests.installation import Installation
from tests.lethe.witness.logs import serving

WITNESS = "witness"  # a folder below the data folder: faults strike its files, too
URL = "https://receiver.example/hook"


def receiver(made: Installation) -> None:
    """Register a webhook; the log so far is nobody's news."""
    _reach_without_network()
    body = {"url": URL, "events": ["request.received"]}
    answer = made.caller.operator("POST", "/v1/webhooks", json=body)
    assert answer.status_code == 201, answer.text
    Sender(made.services).turn()


def notify(made: Installation, told: Told) -> None:
    """Submit a request, and send the notice of it until the receiver has it."""
    submitted(made, told, ("r1",))
    _reach_without_network()

    def once() -> None:
        end_waits(made)
        Sender(made.services).turn()
        with made.services.reading() as session:
            if not are_delivered(session):
                raise StuckError("the notice was not delivered")

    tried(once)
    told("notified", URL)


def _reach_without_network() -> None:
    """Have every receiver answer 204, without a call that could be struck."""
    vars(post).update(check=lambda *_: None, post=lambda *_: post.Answer(204, 0))


def are_delivered(session: Session) -> bool:
    """Return whether there are notices, and none is still to be sent."""
    return set(session.exec(select(Delivery.state)).all()) == {DELIVERED}


def end_waits(made: Installation) -> None:
    """Let time pass: what is to be tried again is due, and leases of the dead have ended."""
    with Session(made.services.engine) as session:
        for row in session.exec(select(Delivery)).all():
            due = {"next_at": row.next_at - timedelta(days=1)}
            if row.lease_until is not None:
                due["lease_until"] = row.lease_until - timedelta(days=1)
            session.connection().execute(
                update(Delivery).where(col(Delivery.id) == row.id).values(due)
            )
        session.commit()


def witness(made: Installation) -> None:
    """Make a witness that knows the log, and have it cosign the log as it is."""
    directory = made.settings.data_dir / WITNESS
    create(directory, "witness.example", [made.services.ledger.verifier])
    _ask(made)


def unwitnessed(made: Installation) -> None:
    """Have a witness, and a checkpoint that was issued without it."""
    witness(made)
    assert made.caller.erase_records("r1").status_code == 202
    latest = made.services.ledger.latest()
    assert Rows(made.services.ledger).add("without", latest.size, latest.note)


def cosigned(made: Installation, told: Told) -> None:
    """Ask the witness, after a new entry, for a cosignature."""
    submitted(made, told, ("r1",))
    cosigned_later(made, told)


def cosigned_later(made: Installation, told: Told) -> None:
    """Ask the witness for a cosignature of the log as it is."""
    size = made.services.ledger.latest().size

    def once() -> int:
        _ask(made)
        with made.services.reading() as session:
            found = Rows(made.services.ledger).witnessed(session)
        if found is None or found[0] < size:
            raise StuckError("the witness does not cosign")
        return found[0]

    told("witnessed", tried(once))


def _ask(made: Installation) -> None:
    """Ask the witness once, which answers in a thread of this process."""
    ledger = made.services.ledger
    with serving(made.settings.data_dir / WITNESS) as url:
        policy = load_policy(_naming(made.settings, url), ledger.keys)
        assert policy is not None
        gatherer = Gatherer(ledger, policy, made.settings)
        try:
            gatherer.round()
        finally:
            gatherer.close()


def _naming(settings: Settings, url: str) -> Settings:
    directory = settings.data_dir / WITNESS
    vkey = (directory / "witness.vkey").read_text().strip()
    path = directory.parent / "witness.policy"
    path.write_text(f"witness w {vkey} {url}\nquorum w\n")
    return settings.model_copy(update={"witness_policy": str(path)})
