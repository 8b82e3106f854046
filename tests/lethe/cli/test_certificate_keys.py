"""Keys and files that `lethe certificate verify` cannot use: exit code 2, and the remedy."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.signing.keys import private_pem, public_pem
from tests.lethe.certificates.build import issuer_key
from tests.lethe.cli.certificates import bundle_in, run_as_main, verify

USAGE: dict[str, list[str]] = {
    "no keys": ["CERTIFICATE"],
    "half the keys": ["CERTIFICATE", "--log-key", "keys/log.vkey"],
    "an empty key directory": ["CERTIFICATE", "--keys", "models"],
    "no such file": ["missing.json", "--keys", "keys"],
    "no file at all": ["--keys", "keys"],
    "a vkey that is none": ["CERTIFICATE", "--keys", "keys", "--log-key", "keys/issuer.pem"],
    "a model as a vkey": ["CERTIFICATE", "--keys", "keys", "--log-key", "binary"],
    "an Ed25519 issuer": ["CERTIFICATE", "--keys", "keys", "--issuer-key", "ed25519.pem"],
    "a threshold without witnesses": ["CERTIFICATE", "--keys", "keys", "--threshold", "1"],
    "a negative threshold": ["CERTIFICATE", "--keys", "keys", "--threshold", "-1"],
}


@pytest.mark.parametrize("name", USAGE)
def test_unusable_input_exits_2_with_the_remedy(
    files: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    (files / "binary").write_bytes(b"\xff\xfe\x00")
    (files / "ed25519.pem").write_text(public_pem(Ed25519PrivateKey.generate()))
    arguments = [str(bundle_in(files)) if a == "CERTIFICATE" else a for a in USAGE[name]]
    result = run_as_main("verify", *arguments)
    assert result.exit_code == 2
    assert "Error: " in result.output


AGAIN = "get it again from the operator, over a channel you trust"
NO_ISSUERS: dict[str, tuple[str, str]] = {
    "no key": ("a web page", f"issuer.pem is not a public key in PEM: {AGAIN}"),
    "an Ed25519 key": (
        public_pem(Ed25519PrivateKey.generate()),
        f"issuer.pem is not an ECDSA P-256 key, and issuers use no other: {AGAIN}",
    ),
    "another curve": (
        public_pem(generate_private_key(SECP384R1())),
        f"issuer.pem is not an ECDSA P-256 key, and issuers use no other: {AGAIN}",
    ),
    "a private key": (
        private_pem(issuer_key()),
        "issuer.pem holds a private key: tell the operator, since whoever saw it",
    ),
}


@pytest.mark.parametrize("name", NO_ISSUERS)
def test_a_file_that_is_no_issuers_key_is_named_with_the_remedy(files: Path, name: str) -> None:
    text, said = NO_ISSUERS[name]
    (files / "keys/issuer.pem").write_text(text)
    result = verify(files)
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert "key new" not in result.output


def test_a_missing_key_comes_from_the_operator(files: Path) -> None:
    (files / "keys/log.vkey").unlink()
    result = verify(files)
    assert result.exit_code == 2
    told = " ".join(result.output.split())
    assert "has no log.vkey: the operator gives it to you (docs/auditor-guide.md)" in told


def test_who_gives_no_key_is_told_each_way_to_give_one(files: Path) -> None:
    result = run_as_main("verify", bundle_in(files))
    assert result.exit_code == 2
    told = " ".join(result.output.split())
    assert (
        "give --trust-root, or --keys with a directory that has log.vkey and issuer.pem" in told
    )


def test_the_key_of_another_operator_is_named_and_no_forgery(files: Path) -> None:
    (files / "keys/issuer.pem").write_text(public_pem(issuer_key(5)))
    result = verify(files)
    assert result.exit_code == 1
    assert "another key file, or another operator" in result.output
