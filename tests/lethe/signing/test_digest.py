"""Content-Digest against openssl and against every single changed byte."""

import base64
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.signing.digest import check_content_digest, format_content_digest
from lethe.signing.errors import DigestMismatchError


def test_it_is_what_openssl_computes() -> None:
    body = b'{"hello": "world"}'
    digest = subprocess.run(
        ["openssl", "dgst", "-sha256", "-binary"],
        input=body,
        check=True,
        capture_output=True,
    ).stdout
    assert format_content_digest(body) == f"sha-256=:{base64.b64encode(digest).decode()}:"


def test_the_example_of_the_standard() -> None:
    # RFC 9530 section 2: the body is this line with a line feed.
    check_content_digest(
        "sha-512=:YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCs"
        "yRZOtw8MjkM7iw7yZ/WkppmM44T3qg==:",
        b'{"hello": "world"}\n',
    )


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_what_is_formatted_is_accepted(body: bytes) -> None:
    check_content_digest(format_content_digest(body), body)


@given(st.binary(min_size=1, max_size=50), st.data())
@settings(deadline=None)
def test_any_changed_byte_is_noticed(body: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(body) - 1))
    changed = bytearray(body)
    changed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DigestMismatchError):
        check_content_digest(format_content_digest(body), bytes(changed))


@given(st.text())
@settings(deadline=None)
def test_no_text_breaks_it(value: str) -> None:
    with pytest.raises(DigestMismatchError):
        check_content_digest(value, b"body")
