"""The head alone: who signed is known before the body is read, and the body is held to it."""

from datetime import UTC, datetime

import pytest

from lethe.signing.errors import (
    DigestMismatchError,
    SignatureIncompleteError,
    SignatureInvalidError,
)
from lethe.signing.http import check_body, verify_head
from tests.lethe.signing.signer import (
    BODY,
    ED25519,
    NONCE,
    NOW,
    P256,
    URI,
    Draft,
    Key,
    Request,
    sign,
)
from tests.lethe.signing.test_http import resolver
from tests.lethe.signing.whole import verify_request

TIME = datetime.fromtimestamp(NOW, UTC)


def judge(request: Request, *, has_body: bool = True, key: Key = ED25519) -> str:
    headers = dict(request.headers)
    signed = verify_head(
        request.method,
        URI,
        headers,
        resolver(key),
        now=TIME,
        has_body=has_body,
    )
    return signed.nonce


def test_a_head_is_verified_without_its_body() -> None:
    request = sign(Draft())
    assert judge(request) == NONCE
    with pytest.raises(SignatureInvalidError):
        judge(request, key=P256)


def test_a_body_is_held_to_the_digest_of_the_head() -> None:
    headers = dict(sign(Draft()).headers)
    check_body(headers, BODY)
    for other in (b"", BODY + b" ", BODY.replace(b"r7", b"r8")):
        with pytest.raises(DigestMismatchError):
            check_body(headers, other)


def test_a_body_that_was_not_announced_is_refused() -> None:
    bare = sign(Draft(covered=['"@method"', '"@target-uri"'], headers={}))
    headers = dict(bare.headers)
    headers.pop("content-digest", None)
    check_body(headers, b"")
    with pytest.raises(SignatureIncompleteError):
        check_body(headers, BODY)
    with pytest.raises(SignatureIncompleteError):
        judge(bare, has_body=True)


def test_what_is_covered_is_told() -> None:
    request = sign(Draft())
    headers = {**dict(request.headers), "idempotency-key": '"k1"'}
    signed = verify_request(request.method, URI, headers, BODY, resolver(ED25519), now=TIME)
    assert "content-digest" in signed.covered
    assert "idempotency-key" not in signed.covered
