"""Who can write a running service's database becomes nobody's key and nobody's token."""

import hashlib

import httpx2
import pytest
from sqlalchemy import text

from lethe.client import Client
from lethe.client.errors import ProblemError
from lethe.signing.keys import generate_key, public_pem
from tests.redteam.live.conftest import Target
from tests.small import MODEL

CHOSEN = "lethe_operator_chosen-by-the-attacker"
PLANT_TOKEN = (
    "INSERT INTO bearer_tokens (digest, scope, name, created_at, mac) "
    "SELECT :digest, scope, 'planted', created_at, mac FROM bearer_tokens"
)
PLANT_KEY = (
    "INSERT INTO requester_keys (keyid, algorithm, public_key, role, created_at, mac) "
    "SELECT 'planted', algorithm, :pem, role, created_at, mac FROM requester_keys "
    "WHERE keyid = 'alice'"
)


def _refused(client: Client) -> str:
    with pytest.raises(ProblemError) as refused:
        client.submit_erasure(MODEL, records=["r1"])
    return refused.value.slug


def test_planted_and_revived_rows_are_unknown(target: Target) -> None:
    processes = target.processes
    gone, planted, narrow = (generate_key("ed25519") for _ in range(3))
    with processes.operator() as operator:
        operator.register_key(gone, keyid="gone")
        operator.register_key(narrow, keyid="narrow", client="c2")
    query = text("SELECT * FROM requester_keys WHERE keyid = 'gone'")
    with target.database() as engine, engine.connect() as connection:
        before = dict(connection.execute(query).mappings().one())
    address = f"{processes.base_url}/v1/keys"
    headers = {"authorization": f"Bearer {processes.token}"}
    httpx2.delete(f"{address}/gone", headers=headers, timeout=30).raise_for_status()
    assert target.fsck() == 0
    with target.database() as engine, engine.begin() as connection:
        digest = hashlib.sha256(CHOSEN.encode()).hexdigest()
        connection.execute(text(PLANT_TOKEN), {"digest": digest})
        connection.execute(text(PLANT_KEY), {"pem": public_pem(planted)})
        connection.execute(
            text("UPDATE requester_keys SET client = NULL WHERE keyid = 'narrow'")
        )
        connection.execute(
            text(
                "UPDATE requester_keys SET revoked_at = NULL, mac = :mac WHERE keyid = 'gone'"
            ),
            {"mac": before["mac"]},
        )
    for keyid, key in {"gone": gone, "planted": planted, "narrow": narrow}.items():
        with Client(processes.base_url, keyid, key) as client:
            assert _refused(client) == "key-unknown"
    chosen = {"authorization": f"Bearer {CHOSEN}"}
    assert httpx2.get(address, headers=chosen, timeout=30).status_code == 401
    listed = httpx2.get(address, headers=headers, timeout=30).json()["items"]
    assert [item["keyid"] for item in listed] == ["alice"]
    assert target.fsck() == 1
    with processes.requester() as requester:
        request = requester.submit_erasure(MODEL, records=["r1"])
        assert requester.wait(request.id, timeout=60).state == "certified"
