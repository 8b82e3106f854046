"""The quick way of reading a signature against the general one, which it must never leave."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lethe.signing import http
from lethe.signing.digest import check_content_digest, format_content_digest
from lethe.signing.errors import DigestMismatchError, SignatureError
from lethe.signing.fields import field_lines, parse_fields
from lethe.signing.http import SignedBy, sign_request
from lethe.signing.plain import parse_plain
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
    b64,
    sign,
)
from tests.lethe.signing.test_http import NOISE, damaged, resolver
from tests.lethe.signing.test_vectors import FILES, load, verify
from tests.lethe.signing.whole import verify_request

TIME = datetime.fromtimestamp(NOW, UTC)
KEYS = pytest.mark.parametrize("key", [ED25519, P256], ids=["ed25519", "ecdsa-p256"])
Outcome = SignedBy | tuple[type[SignatureError], str]


def outcome(method: str, uri: str, headers: dict[str, str], body: bytes, key: Key) -> Outcome:
    try:
        return verify_request(method, uri, headers, body, resolver(key), now=TIME)
    except SignatureError as error:
        return type(error), error.detail


def in_general(
    method: str, uri: str, headers: dict[str, str], body: bytes, key: Key
) -> Outcome:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(http, "parse_plain", lambda lines: None)
        return outcome(method, uri, headers, body, key)


def signed_by_us(
    key: Key, uri: str = URI, idempotency_key: str | None = None
) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept": "*/*"}
    if idempotency_key is not None:
        headers["idempotency-key"] = idempotency_key
    return headers | sign_request(
        "POST", uri, headers, BODY, key, "requester-1", now=TIME, nonce=NONCE
    )


@KEYS
@pytest.mark.parametrize("idempotency_key", [None, '"k1"', "k 1"])
def test_what_our_clients_send_needs_no_general_reading(
    key: Key, idempotency_key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = signed_by_us(key, idempotency_key=idempotency_key)
    general = in_general("POST", URI, headers, BODY, key)
    assert isinstance(general, SignedBy)

    def refuse(*_: object) -> None:
        raise AssertionError("it was read in general")

    monkeypatch.setattr(http, "parse_fields", refuse)
    monkeypatch.setattr(http, "check_signature", refuse)
    assert outcome("POST", URI, headers, BODY, key) == general


def test_a_call_without_a_body_is_plain_too() -> None:
    added = sign_request("DELETE", URI, {}, b"", ED25519, "k", now=TIME, nonce=NONCE)
    plain = parse_plain(field_lines(added))
    assert plain is not None
    assert plain.covered == ("@method", "@target-uri")
    assert plain.fields == parse_fields(field_lines(added))


@KEYS
@pytest.mark.parametrize("place", range(64))
def test_no_other_signature_is_accepted(key: Key, place: int) -> None:
    headers = signed_by_us(key)
    plain = parse_plain(field_lines({k.lower(): v for k, v in headers.items()}))
    assert plain is not None
    changed = bytearray(plain.signature)
    changed[place] ^= 1
    headers["Signature"] = f"lethe=:{b64(bytes(changed))}:"
    found = outcome("POST", URI, headers, BODY, key)
    assert found == in_general("POST", URI, headers, BODY, key)
    assert not isinstance(found, SignedBy)


@given(data=st.data())
@fuzz(400)
def test_damage_has_one_outcome_either_way(data: st.DataObject) -> None:
    keys: st.SearchStrategy[Key] = st.sampled_from([ED25519, P256])
    key = data.draw(keys)
    headers = signed_by_us(key, idempotency_key=data.draw(st.sampled_from([None, '"k1"'])))
    method, uri = "POST", URI
    for name in data.draw(st.sets(st.sampled_from([*sorted(headers), "method", "uri"]))):
        if name == "method":
            method = data.draw(damaged(method))
        elif name == "uri":
            uri = data.draw(damaged(uri))
        else:
            headers[name] = data.draw(damaged(headers[name]))
    if data.draw(st.booleans()):
        headers[data.draw(NOISE)] = data.draw(NOISE)
    call = method, uri, headers, BODY, key
    assert outcome(*call) == in_general(*call)


TARGETS = st.one_of(
    st.from_regex(r"https?://[a-zA-Z0-9.:%\[\]@-]{1,20}(/[a-z%?#&=.~]{0,10})?", fullmatch=True),
    st.sampled_from(
        ["http://h:0/", "http://h:99999/x", "http://h//x", "http://h/./x", "http://h"]
    ),
)


@given(
    uri=TARGETS, value=st.text(st.characters(max_codepoint=0x2FF), max_size=12), method=NOISE
)
@example(uri=URI, value=" a\tb ", method="POST")
@example(uri=URI, value="", method="post")
@fuzz(300)
def test_each_base_that_is_quick_is_the_one_of_the_library(
    uri: str, value: str, method: str
) -> None:
    """Where both sign the same words: what is plain verifies exactly where the other does."""
    headers = {"content-type": value, **dict(sign(Draft()).headers)}
    headers["signature-input"] = (
        'sig1=("@method" "@target-uri" "content-type" "content-digest");created=1799999990'
        f';keyid="requester-1";alg="ed25519";expires=1800000290;nonce="{NONCE}"'
        ';tag="lethe-erasure"'
    )
    headers["content-type"] = value
    lines = field_lines(headers)
    plain = parse_plain(lines)
    assert plain is not None
    assert plain.fields == parse_fields(lines)
    if (base := plain.base(method, uri, lines)) is None:
        return
    headers["signature"] = f"sig1=:{b64(ED25519.sign(base))}:"
    found = in_general(method, uri, headers, BODY, ED25519)
    assert isinstance(found, SignedBy), found
    assert outcome(method, uri, headers, BODY, ED25519) == found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recorded_request_has_one_outcome_either_way(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> Outcome:
        try:
            return verify(load(path))
        except SignatureError as error:
            return type(error), error.detail

    quick = found()
    monkeypatch.setattr(http, "parse_plain", lambda lines: None)
    assert found() == quick


@given(body=st.binary(max_size=40), other=st.binary(max_size=40))
def test_the_digest_of_another_body_is_refused(body: bytes, other: bytes) -> None:
    spelt = format_content_digest(body)
    check_content_digest(spelt, body)
    if body != other:
        with pytest.raises(DigestMismatchError):
            check_content_digest(spelt, other)
