"""What a stranger, or somebody with another's request, sends to a running service."""

import httpx2
import pytest
from sqlalchemy import text

from lethe.client import Client
from lethe.client.errors import ProblemError
from lethe.signing.keys import generate_key
from tests.redteam.live.conftest import Target
from tests.small import MODEL


def _stored(target: Target) -> int:
    with target.database() as engine, engine.connect() as connection:
        return int(
            connection.execute(text("SELECT count(*) FROM erasure_requests")).scalar_one()
        )


def test_a_strangers_key_erases_nothing(target: Target) -> None:
    key = generate_key("ed25519")
    with (
        Client(target.processes.base_url, "alice", key) as stranger,
        pytest.raises(ProblemError) as refused,
    ):
        stranger.submit_erasure(MODEL, records=["r1"])
    assert refused.value.status == 401
    assert _stored(target) == 0
    assert target.fsck() == 0


def test_an_unsigned_request_erases_nothing(target: Target) -> None:
    body = {
        "model": MODEL,
        "scope": {"level": "sample", "records": ["r1"]},
        "regulation": "gdpr",
    }
    answer = httpx2.post(f"{target.processes.base_url}/v1/requests", json=body, timeout=30)
    assert answer.status_code == 401
    assert _stored(target) == 0
