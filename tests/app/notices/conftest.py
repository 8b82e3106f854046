"""An installation that may send webhooks to this machine."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update
from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.notices.sender import Sender
from app.settings import Settings
from lethe.catalogue import NOTICES
from lethe.signing.keys import PrivateKey
from models import Delivery
from tests.app.notices.receiver import Receiver, receiving
from tests.installation import Installation, install

ALLOWED = "127.0.0.0/8, localhost"


@pytest.fixture
def mail() -> dict[str, Any]:
    """Settings of mail, for a test to replace."""
    return {}


@pytest.fixture
def installation(
    settings: Settings, ledger: Ledger, mail: dict[str, Any]
) -> Iterator[Installation]:
    allowed = {"webhook_allow": ALLOWED, "public_url": "http://testserver", **mail}
    with install(Settings(**{**settings.model_dump(), **allowed})) as made:
        yield made


@pytest.fixture
def ready(installation: Installation, fitted: PrivateKey) -> Installation:
    installation.caller.key = fitted
    turn(installation)  # the log so far is nobody's news
    return installation


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def turn(installation: Installation) -> None:
    Sender(installation.services).turn()


def add(
    installation: Installation, receiver: Receiver, *events: str, **more: Any
) -> dict[str, Any]:
    body = {"url": receiver.url, "events": events or tuple(NOTICES), **more}
    answer = installation.caller.operator("POST", "/v1/webhooks", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def deliveries(installation: Installation, webhook: str) -> list[dict[str, Any]]:
    answer = installation.caller.operator("GET", f"/v1/webhooks/{webhook}/deliveries")
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def rows(installation: Installation) -> list[Delivery]:
    with Session(installation.services.engine) as session:
        return list(session.exec(select(Delivery).order_by(col(Delivery.id))).all())


def pass_time(installation: Installation, **by: float) -> None:
    """Let all that waits become due, or leases end, as if the time had passed."""
    with Session(installation.services.engine) as session:
        for row in session.exec(select(Delivery)).all():
            changed: dict[str, Any] = {"next_at": row.next_at - timedelta(**by)}
            if row.lease_until is not None:
                changed["lease_until"] = row.lease_until - timedelta(**by)
            session.connection().execute(
                update(Delivery).where(col(Delivery.id) == row.id).values(changed)
            )
        session.commit()
