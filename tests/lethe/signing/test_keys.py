"""Two kinds of key are read, whatever made them; every other kind is refused by name."""

import base64
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from lethe.signing.errors import KeyFormatError
from lethe.signing.keys import (
    Algorithm,
    algorithm_of,
    fingerprint,
    generate_key,
    load_private_key,
    load_public_key,
    private_pem,
    public_of,
    public_pem,
)

ALGORITHMS: tuple[Algorithm, ...] = ("ed25519", "ecdsa-p256-sha256")


def openssl(*arguments: str) -> bytes:
    return subprocess.run(["openssl", *arguments], check=True, capture_output=True).stdout


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_keys_survive_being_written_and_read(algorithm: Algorithm) -> None:
    key = generate_key(algorithm)
    again = load_private_key(private_pem(key).encode())
    assert private_pem(again) == private_pem(key)
    public = load_public_key(public_pem(key).encode())
    assert public_pem(public) == public_pem(key)
    assert algorithm_of(key) == algorithm_of(public) == algorithm
    assert public_pem(public_of(public)) == public_pem(key)


def test_a_key_under_which_anybody_signs_is_refused() -> None:
    neutral = bytes([1]) + bytes(31)
    key = Ed25519PublicKey.from_public_bytes(neutral)
    for request in (b"erase everything", b"erase nothing"):
        key.verify(neutral + bytes(32), request)  # whoever registered it could deny both
    with pytest.raises(KeyFormatError, match="anybody can sign as this public key"):
        load_public_key(public_pem(key).encode())


def test_generated_keys_differ() -> None:
    assert private_pem(generate_key()) != private_pem(generate_key())


@pytest.mark.parametrize(
    ("algorithm", "arguments"),
    [
        ("ed25519", ["-algorithm", "ed25519"]),
        ("ecdsa-p256-sha256", ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]),
    ],
)
def test_keys_made_by_openssl_are_read_and_ours_by_openssl(
    algorithm: Algorithm, arguments: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "key.pem"
    openssl("genpkey", *arguments, "-out", str(file))
    key = load_private_key(file.read_bytes())
    assert algorithm_of(key) == algorithm
    assert openssl("pkey", "-in", str(file), "-pubout").decode() == public_pem(key)
    der = openssl("pkey", "-in", str(file), "-pubout", "-outform", "DER")
    assert fingerprint(key) == fingerprint(public_of(key)) == sha256(der).hexdigest()[:16]
    file.write_text(private_pem(generate_key(algorithm)))
    openssl("pkey", "-in", str(file), "-check", "-noout")


def test_the_traditional_form_of_an_ec_key_is_read() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    old = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    assert public_pem(load_private_key(old)) == public_pem(key)


FOREIGN: list[tuple[str, Callable[[], PrivateKeyTypes]]] = [
    ("RSA", lambda: rsa.generate_private_key(65537, 2048)),
    ("secp384r1", lambda: ec.generate_private_key(ec.SECP384R1())),
    ("secp256k1", lambda: ec.generate_private_key(ec.SECP256K1())),
    ("Ed448", ed448.Ed448PrivateKey.generate),
    ("X25519", x25519.X25519PrivateKey.generate),
    ("DSA", lambda: dsa.generate_private_key(2048)),
]


@pytest.fixture(scope="module")
def foreign() -> dict[str, PrivateKeyTypes]:
    return {name: make() for name, make in FOREIGN}


@pytest.mark.parametrize("name", [name for name, _ in FOREIGN])
def test_other_kinds_are_refused_by_name(
    name: str, foreign: dict[str, PrivateKeyTypes]
) -> None:
    key = foreign[name]
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(KeyFormatError, match=f"{name} is not accepted.*lethe key new"):
        load_private_key(private)
    with pytest.raises(KeyFormatError, match=f"{name} is not accepted.*lethe key new"):
        load_public_key(public)


def test_an_encrypted_private_key_names_the_remedy() -> None:
    encrypted = generate_key().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")
    )
    with pytest.raises(KeyFormatError, match=r"is encrypted.*openssl pkey"):
        load_private_key(encrypted)


def test_a_private_key_is_not_taken_for_a_public_one() -> None:
    key = generate_key()
    with pytest.raises(KeyFormatError, match="private key: send the public half") as error:
        load_public_key(private_pem(key).encode())
    assert private_pem(key)[40:60] not in str(error.value)


BROKEN = {
    "empty": b"",
    "not PEM": b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 someone",
    "not base64": b"-----BEGIN PUBLIC KEY-----\n%%%%\n-----END PUBLIC KEY-----\n",
    "truncated": public_pem(generate_key())[:60].encode(),
    "not UTF-8": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_text_is_refused_without_an_echo(name: str) -> None:
    for load in (load_private_key, load_public_key):
        with pytest.raises(KeyFormatError) as error:
            load(BROKEN[name])
        assert "someone" not in str(error.value)


def test_a_private_key_of_another_kinds_length_is_refused() -> None:
    """OpenSSL's own error for X448 with 32 bytes (RFC 8410, section 7) is no ValueError."""
    der = bytes.fromhex("302e020100300506032b656f04220420") + bytes(range(32))
    text = base64.encodebytes(der).decode()
    pem = f"-----BEGIN PRIVATE KEY-----\n{text}-----END PRIVATE KEY-----\n"
    with pytest.raises(KeyFormatError, match="not a private key"):
        load_private_key(pem.encode())
