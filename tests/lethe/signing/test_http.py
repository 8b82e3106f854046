"""sign_request against a hand-made verifier, and verify_request against hostile fields."""

import base64
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lethe.errors import LetheError
from lethe.signing.errors import KeyFormatError, KeyNotEntitledError, SignatureError
from lethe.signing.http import new_nonce, sign_request
from lethe.signing.keys import Algorithm, PublicKey, algorithm_of, public_of
from tests.fuzz import fuzz
from tests.lethe.signing.signer import (
    BODY,
    ED25519,
    NONCE,
    NOW,
    P256,
    URI,
    Draft,
    Key,
    bare_draft,
    sha256_field,
    sign,
    signature_base,
)
from tests.lethe.signing.whole import verify_request

TIME = datetime.fromtimestamp(NOW, UTC)
JSON = {"Content-Type": "application/json"}
both_keys = pytest.mark.parametrize("key", [ED25519, P256], ids=["ed25519", "ecdsa-p256"])


def resolver(key: Key) -> Callable[[str], tuple[PublicKey, Algorithm]]:
    return lambda keyid: (public_of(key), algorithm_of(key))


def check_by_hand(key: PublicKey, message: bytes, signature: bytes) -> None:
    if isinstance(key, Ed25519PublicKey):
        key.verify(signature, message)
        return
    assert len(signature) == 64
    r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
    key.verify(encode_dss_signature(r, s), message, ECDSA(SHA256()))


@both_keys
def test_what_is_signed_is_the_base_that_the_standard_describes(key: Key) -> None:
    headers = {**JSON, "Idempotency-Key": '"k1"', "Accept": "*/*"}
    added = sign_request(
        "POST",
        URI,
        headers,
        BODY,
        key,
        "requester-1",
        now=TIME,
        nonce=NONCE,
        lifetime=timedelta(seconds=290),
    )
    assert added["Content-Digest"] == sha256_field(BODY)
    assert added["Signature-Input"] == (
        'lethe=("@method" "@target-uri" "content-type" "content-digest" "idempotency-key")'
        f';created={NOW};keyid="requester-1";alg="{algorithm_of(key)}";expires={NOW + 290}'
        f';nonce="{NONCE}";tag="lethe-erasure"'
    )
    base = signature_base(
        Draft(
            headers={
                "content-type": "application/json",
                "content-digest": added["Content-Digest"],
                "idempotency-key": '"k1"',
            },
            covered=[*Draft().covered, '"idempotency-key"'],
        ),
        added["Signature-Input"].removeprefix("lethe="),
    )
    signature = base64.b64decode(added["Signature"].removeprefix("lethe=:")[:-1])
    check_by_hand(public_of(key), base, signature)
    with pytest.raises(InvalidSignature):  # the hand-made check can fail
        check_by_hand(public_of(key), base + b" ", signature)


@both_keys
@given(
    method=st.sampled_from(["POST", "PUT", "DELETE", "GET"]),
    path=st.from_regex(r"/[A-Za-z0-9/_.-]{0,20}(\?[a-z=&0-9%20]{0,5})?", fullmatch=True),
    body=st.binary(max_size=64),
    lifetime=st.integers(1, 600),
)
@settings(deadline=None, max_examples=60)
def test_what_is_signed_verifies_until_it_expires(
    key: Key, method: str, path: str, body: bytes, lifetime: int
) -> None:
    path = re.sub(r"%(?!20)", "", path)
    url, nonce = f"http://127.0.0.1:8000{path}", new_nonce()
    added = sign_request(
        method,
        url,
        JSON,
        body,
        key,
        "k",
        now=TIME,
        nonce=nonce,
        lifetime=timedelta(seconds=lifetime),
    )
    headers = {name.upper(): value for name, value in (JSON | added).items()}

    def verify(seconds: float) -> None:
        signed = verify_request(
            method,
            url,
            headers,
            body,
            resolver(key),
            now=TIME + timedelta(seconds=seconds),
        )
        assert (signed.keyid, signed.nonce) == ("k", nonce)
        assert signed.created == TIME
        assert signed.expires == TIME + timedelta(seconds=lifetime)

    verify(-5)
    verify(0)
    verify(lifetime + 5)
    for seconds, slug in (
        (-5.001, "signature-not-yet-valid"),
        (lifetime + 5.001, "signature-expired"),
    ):
        with pytest.raises(SignatureError) as refusal:
            verify(seconds)
        assert refusal.value.slug == slug


def test_a_given_digest_is_replaced_by_the_right_one() -> None:
    headers = {**JSON, "content-digest": sha256_field(b"another")}
    added = sign_request("POST", URI, headers, BODY, ED25519, "k", now=TIME, nonce=NONCE)
    assert added["Content-Digest"] == sha256_field(BODY)


REFUSED_TO_SIGN = [
    ("no content type", {"headers": {}}, "signature-incomplete"),
    ("nonce too short", {"nonce": "short"}, "signature-malformed"),
    ("keyid not ASCII", {"keyid": "clé"}, "signature-malformed"),
    ("no lifetime", {"lifetime": timedelta(0)}, "signature-window"),
    ("too long", {"lifetime": timedelta(seconds=601)}, "signature-window"),
    ("relative URL", {"url": "/v1/requests"}, "signature-malformed"),
    ("space in URL", {"url": "http://h/a b"}, "signature-malformed"),
    ("lowercase method", {"method": "post"}, "signature-malformed"),
    ("type not ASCII", {"headers": {"Content-Type": "té/xt"}}, "signature-malformed"),
]


@pytest.mark.parametrize(
    ("changes", "slug"),
    [row[1:] for row in REFUSED_TO_SIGN],
    ids=[r[0] for r in REFUSED_TO_SIGN],
)
def test_what_would_be_refused_is_not_signed(changes: dict[str, object], slug: str) -> None:
    arguments: dict[str, object] = {
        "method": "POST",
        "url": URI,
        "headers": JSON,
        "body": BODY,
        "key": ED25519,
        "keyid": "k",
        "now": TIME,
        "nonce": NONCE,
    }
    with pytest.raises(SignatureError) as refusal:
        sign_request(**{**arguments, **changes})  # type: ignore[arg-type]
    assert refusal.value.slug == slug


def test_a_foreign_key_does_not_sign() -> None:
    with pytest.raises(KeyFormatError):
        sign_request(
            "POST",
            URI,
            JSON,
            BODY,
            object(),  # type: ignore[arg-type]
            "k",
            now=TIME,
            nonce=NONCE,
        )


def test_the_keyring_may_refuse_in_its_own_words() -> None:
    def revoked(keyid: str) -> tuple[PublicKey, Algorithm]:
        raise KeyNotEntitledError("not here")

    request = sign(Draft())
    with pytest.raises(KeyNotEntitledError):
        verify_request(request.method, URI, dict(request.headers), BODY, revoked, now=TIME)


def test_the_keyring_is_not_asked_about_an_expired_signature() -> None:
    def asked(keyid: str) -> tuple[PublicKey, Algorithm]:
        raise AssertionError

    request = sign(Draft())
    with pytest.raises(SignatureError):
        verify_request(
            "POST",
            URI,
            dict(request.headers),
            BODY,
            asked,
            now=TIME + timedelta(hours=1),
        )


def test_nonces_are_long_enough_and_differ() -> None:
    nonces = {new_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert {len(nonce) for nonce in nonces} == {32}


# Pieces of the grammar, so that chance gets past the first character.
PIECES = st.sampled_from(
    [
        *'=;:,()"@?%*-. \t\\',
        '"@method"',
        '"@target-uri"',
        '"@query-param";name="a"',
        '"content-digest";sf',
        '"content-type";bs',
        '"content-digest";key="x"',
        ";tr",
        ";req",
        "sig1=",
        ":AAAA:",
        ";created=1",
        ";expires=99999999999999999",
        ';nonce="x"',
        ';tag="lethe-erasure"',
        "?1",
        "@1",
        "1.5",
        '%"%c3%a9"',
        "\u00e9",
        "\ud800",
        "\x00",
        "\r\n",
        "\u2028",
    ]
)
NOISE = st.one_of(st.lists(PIECES, max_size=8).map("".join), st.text(max_size=20))


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """text with a stretch of it replaced by noise."""
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + draw(st.integers(0, 40)))))
    return text[:start] + draw(NOISE) + text[end:]


@given(st.data())
@fuzz(400)
def test_hostile_fields_raise_nothing_else_and_change_nothing(data: st.DataObject) -> None:
    request = sign(data.draw(st.sampled_from([Draft(), bare_draft()])))
    headers = dict(request.headers)
    for name in data.draw(st.sets(st.sampled_from(sorted(headers)), min_size=1)):
        headers[name] = data.draw(damaged(headers[name]))
    if data.draw(st.booleans()):
        headers[data.draw(NOISE)] = data.draw(NOISE)
    try:
        signed = verify_request(
            request.method, request.uri, headers, request.body, resolver(ED25519), now=TIME
        )
    except SignatureError:
        return
    # A label or a space may change without harm; who signed, what and when may not.
    assert (signed.keyid, signed.nonce) == ("requester-1", NONCE)
    assert signed.expires == TIME + timedelta(seconds=290)


@given(
    signature_input=NOISE,
    signature=NOISE,
    digest=NOISE,
    method=NOISE,
    uri=NOISE,
    body=st.binary(max_size=8),
)
@example('a=();tag="lethe-erasure"', "a=:AAAA:", "", "", "", b"")
@fuzz(400)
def test_pure_noise_is_refused_by_name(
    signature_input: str, signature: str, digest: str, method: str, uri: str, body: bytes
) -> None:
    headers = {
        "signature-input": signature_input,
        "signature": signature,
        "content-digest": digest,
        "content-type": digest,
    }
    with pytest.raises(SignatureError) as refusal:
        verify_request(method, uri, headers, body, resolver(ED25519), now=TIME)
    assert isinstance(refusal.value, LetheError)
    assert refusal.value.status in (400, 401)


@given(uri=NOISE, method=NOISE)
@settings(deadline=None)
def test_a_hostile_host_or_method_is_refused_by_name(uri: str, method: str) -> None:
    request = sign(Draft())
    with pytest.raises(SignatureError):
        verify_request("POST", uri, dict(request.headers), BODY, resolver(ED25519), now=TIME)
    with pytest.raises(SignatureError):
        verify_request(method, URI, dict(request.headers), BODY, resolver(ED25519), now=TIME)


def test_an_error_does_not_repeat_what_was_sent() -> None:
    private = "alice@example.org"
    draft = replace(Draft(), covered=[*Draft().covered, f'"{private}"'])
    draft.values[f'"{private}"'] = private
    request = sign(draft)
    with pytest.raises(SignatureError) as refusal:
        verify_request(
            "POST",
            URI,
            dict(request.headers) | {private: private},
            b"{}",
            resolver(P256),
            now=TIME,
        )
    assert private not in str(refusal.value)
