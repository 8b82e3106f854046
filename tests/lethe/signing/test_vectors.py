"""Each recorded request is accepted, or refused for the reason that its file names."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from lethe.signing.errors import SignatureError
from lethe.signing.http import SignedBy
from lethe.signing.keys import Algorithm, PublicKey, algorithm_of, load_public_key
from tests.lethe.signing.case_tools import CASES, Case
from tests.lethe.signing.vectors import VECTORS, as_vector
from tests.lethe.signing.whole import verify_request

FILES = sorted(VECTORS.glob("*.json"))


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def verify(vector: Any) -> SignedBy:
    def resolve(keyid: str) -> tuple[PublicKey, Algorithm] | None:
        entry = vector["keys"].get(keyid)
        if entry is None:
            return None
        key = load_public_key(entry["publicKey"].encode())
        assert algorithm_of(key) == entry["algorithm"]
        return key, algorithm_of(key)

    request = vector["request"]
    headers = Headers(raw=[(n.encode(), v.encode("latin-1")) for n, v in request["headers"]])
    return verify_request(
        request["method"],
        request["targetUri"],
        headers,
        base64.b64decode(request["body"]),
        resolve,
        now=datetime.fromtimestamp(vector["now"], UTC),
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_vector(path: Path) -> None:
    vector = load(path)
    if vector["wantErr"] is None:
        signed = verify(vector)
        assert signed.keyid in vector["keys"]
        assert signed.nonce == "Zm9yZ2V0IG1lIG5vdA"
        return
    with pytest.raises(SignatureError) as refusal:
        verify(vector)
    assert refusal.value.slug == vector["wantErr"]


# Refused when the components are computed, which is after the key was looked up.
COMPUTED = ("component-", "method-", "target-")
READ = [
    path
    for path in FILES
    if load(path)["wantErr"] == "signature-malformed" and not path.stem.startswith(COMPUTED)
]


@pytest.mark.parametrize("path", READ, ids=lambda path: path.stem)
def test_what_cannot_be_read_never_reaches_the_keyring(path: Path) -> None:
    with pytest.raises(SignatureError) as refusal:
        verify(load(path) | {"keys": {}})
    assert refusal.value.slug == "signature-malformed"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_file_is_what_the_table_says(case: Case) -> None:
    assert load(VECTORS / f"{case.name}.json") == as_vector(case)


def test_no_file_is_left_over_and_no_name_is_used_twice() -> None:
    assert sorted(case.name for case in CASES) == [path.stem for path in FILES]


def test_the_tables_reach_every_reason_and_enough_good_requests() -> None:
    # A verifier that refuses all, or accepts all, must fail somewhere above.
    of_the_service = {"signature-replayed", "key-not-entitled"}
    reasons = {kind.slug for kind in SignatureError.__subclasses__()} - of_the_service
    wants = [case.want for case in CASES]
    assert set(wants) == reasons | {None}
    assert wants.count(None) >= 10
