"""An installation whose requesters may have this machine called back."""

from typing import Any

import pytest
from httpx2 import Response

from app.notices.sender import Sender
from tests.app.notices.conftest import ALLOWED
from tests.app.notices.receiver import Receiver
from tests.installation import Installation


@pytest.fixture
def mail() -> dict[str, Any]:
    """Settings, in the place of those of mail."""
    return {"callback_allow": ALLOWED}


def erase(
    installation: Installation, receiver: Receiver, *records: str, path: str = ""
) -> dict[str, Any]:
    """Submit a request with a callback; return the answer."""
    answer = ask(installation, receiver.url + path, *records)
    assert answer.status_code == 202, answer.text
    body: dict[str, Any] = answer.json()
    return body


def ask(installation: Installation, url: Any, *records: str, **more: Any) -> Response:
    return installation.caller.erase_records(*records, fields={"callback": url}, **more)


def call_back(installation: Installation) -> None:
    Sender(installation.services).turn()


def callbacks(installation: Installation, **query: str) -> list[dict[str, Any]]:
    answer = installation.caller.operator("GET", "/v1/callbacks", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def sent(installation: Installation, callback: str) -> list[dict[str, Any]]:
    path = f"/v1/callbacks/{callback}/deliveries"
    answer = installation.caller.operator("GET", path)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found
