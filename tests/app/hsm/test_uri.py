"""PKCS#11 URIs in key files: what they name, and what is refused."""

from pathlib import Path

import pytest

from app.hsm.errors import HsmError
from app.hsm.uri import KeyUri, parse_uri

LOG = KeyUri("lethe", "log")


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("pkcs11:token=lethe;object=log", LOG),
        ("pkcs11:object=log;token=lethe;type=private\n", LOG),
        (
            "pkcs11:token=a%3Bb%20%C3%A9;serial=00ff;object=log;id=%01%FF",
            KeyUri("a;b é", "log", "00ff", b"\x01\xff"),
        ),
        (
            "pkcs11:token=lethe;object=log?pin-source=file:/run/secrets/pin",
            KeyUri("lethe", "log", pin_source=Path("/run/secrets/pin")),
        ),
        (
            "pkcs11:token=lethe;object=log?pin-source=/run/pin%20file",
            KeyUri("lethe", "log", pin_source=Path("/run/pin file")),
        ),
    ],
)
def test_a_key_is_named(text: str, uri: KeyUri) -> None:
    assert parse_uri(text) == uri
    assert parse_uri(str(uri)) == uri


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("file:/keys/log.key", "no PKCS#11 URI"),
        ("pkcs11:", "attribute"),
        ("pkcs11:token=lethe", "lacks a token or an object"),
        ("pkcs11:token=;object=log", "lacks a token or an object"),
        ("pkcs11:token=lethe;object=log;object=issuer", "twice"),
        ("pkcs11:token=lethe;object=log;slot-id=3", "unknown"),
        ("pkcs11:token=lethe;object=log;type=public", "no private key"),
        ("pkcs11:token=%FF;object=log", "not UTF-8"),
        ("pkcs11:token=a%1Bb;object=log", "control character"),
        ("pkcs11:token=lethe;object=log?pin-source=pin", "is a file"),
        ("pkcs11:token=lethe;object=log?pin-source=|cat", "is a file"),
        ("pkcs11:token=lethe;object=log?pin-value=4711", "LETHE_PKCS11_PIN"),
        ("pkcs11:token=lethe;object=log?module-path=/tmp/mine.so", "LETHE_PKCS11_MODULE"),
    ],
)
def test_what_names_no_key_is_refused(text: str, why: str) -> None:
    with pytest.raises(HsmError, match=why) as refused:
        parse_uri(text)
    assert "4711" not in refused.value.detail


def test_the_next_key_is_beside_the_one_before() -> None:
    second = KeyUri("lethe", "log", "7", b"\x01", Path("/pin")).numbered(2)
    assert second == KeyUri("lethe", "log-2", "7", b"", Path("/pin"))
    assert second.numbered(3).object == "log-3"
    assert KeyUri("lethe", "site-a").numbered(2).object == "site-a-2"
