"""What a holder of a good key tries beyond its own: others' rows, replays, other roles."""

import stat
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import numpy as np
import pytest

from lethe.client import Client
from lethe.client.errors import ProblemError
from lethe.signing.http import new_nonce, sign_request
from lethe.signing.keys import generate_key
from tests.redteam.live.conftest import Target
from tests.small import MODEL, pack, rows

JANE = {"subject": "jane"}


def _client(target: Target, keyid: str, role: str, **bound: str) -> Client:
    key = generate_key("ed25519")
    with target.processes.operator() as operator:
        operator.register_key(key, role, keyid=keyid, **bound)
    return Client(target.processes.base_url, keyid, key)


def _jane_at(client: str, first: int) -> bytes:
    arrays = rows(seed=first, count=3, first=first)
    arrays["clients"], arrays["subjects"] = np.array([client] * 3), np.array(["jane"] * 3)
    return pack(arrays)


def _refused(call: object, **arguments: object) -> str:
    with pytest.raises(ProblemError) as refused:
        call(MODEL, **arguments)  # type: ignore[operator]
    return refused.value.slug


def test_a_bound_key_reaches_nothing_of_others(target: Target) -> None:
    with (
        _client(target, "feeder-1", "client", client="c1") as first,
        _client(target, "feeder-2", "client", client="c2") as second,
        _client(target, "only-c1", "requester", client="c1") as bound,
        target.processes.requester() as unbound,
    ):
        first.contribute(MODEL, _jane_at("c1", 500))
        second.contribute(MODEL, _jane_at("c2", 600))  # before, between or after: it stays
        waited = {"contribution-pending", "record-unknown"}
        while True:
            try:
                asked = bound.submit_erasure(MODEL, **JANE)
                break
            except ProblemError as error:
                if error.slug not in waited:
                    raise
        assert bound.wait(asked.id, timeout=60).state == "certified"
        assert _refused(bound.submit_erasure, **JANE) == "already-erased"
        # One answer for what is another's, never was, or was erased.
        gone = unbound.submit_erasure(MODEL, records=["r2"])
        assert unbound.wait(gone.id, timeout=60).state == "certified"
        answers = [_refused(bound.submit_erasure, records=[name]) for name in ("r2", "r3", "x")]
        assert answers == ["key-not-entitled"] * 3
        # The erased record of c2 does not come back by c1, and roles are kept apart.
        mine = rows(count=3)
        mine = {name: values[2:] for name, values in mine.items()}
        mine["clients"] = np.array(["c1"])
        assert (
            _refused(lambda model: first.contribute(model, pack(mine), add_back=True))
            == "conflict"
        )
        assert _refused(first.submit_erasure, records=["r1"]) == "key-not-entitled"
        # What c2 contributed for jane is all still there to be erased by who may.
        rest = unbound.submit_erasure(MODEL, records=["r600", "r601", "r602"])
        assert unbound.wait(rest.id, timeout=60).state == "certified"
    assert target.fsck() == 0


def test_a_refused_call_cannot_be_sent_again_and_files_are_private(target: Target) -> None:
    url = f"{target.processes.base_url}/v1/requests"
    body = b'{"model": "small", "scope": {"level": "sample", "records": ["r500"]}}'
    headers = {"Content-Type": "application/json"}
    headers |= sign_request(
        "POST",
        url,
        headers,
        body,
        target.processes.key,
        "alice",
        now=datetime.now(UTC),
        nonce=new_nonce(),
    )
    first = httpx2.post(url, content=body, headers=headers, timeout=30)
    assert first.json()["type"] == "urn:lethe:problem:record-unknown"
    again = httpx2.post(url, content=body, headers=headers, timeout=30)
    assert again.json()["type"] == "urn:lethe:problem:signature-replayed"
    with target.processes.requester() as requester:
        ids = [f"nobody-{number}" for number in range(10_000)]
        assert _refused(requester.submit_erasure, records=ids) == "record-unknown"
        requester.submit_erasure(MODEL, records=["r1"])
    for path in Path(target.processes.settings.data_dir).rglob("*"):
        public = path.suffix in (".pem", ".pub", ".vkey") or path.is_socket()
        if path.is_file() and not public:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path.name
