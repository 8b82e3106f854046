"""The public keys that a verification starts from; the operator publishes them."""

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from lethe.errors import LetheError
from lethe.log.note import ML_DSA_44, NoteError, NoteVerifier, parse_log_vkey, parse_vkey

# File names in an operator's key directory.
LOG_KEY, LOG_ML_DSA_KEY, ISSUER_KEY = "log.vkey", "log-mldsa.vkey", "issuer.pem"
AGAIN = "get it again from the operator, over a channel you trust"


class PublicKeyError(LetheError):
    """A file that does not hold the expected public key; the message names the remedy."""

    slug, title, status = "bad-public-key", "Wrong public key", 400


def read_log_key(path: Path) -> NoteVerifier:
    """Read the log's verifier key from a file.

    Raises PublicKeyError: it does not hold one; OSError: the file cannot be read.
    """
    return _read_vkey(path, log=True)


def read_ml_dsa_key(path: Path, log: str) -> NoteVerifier:
    """Read the ML-DSA-44 key of the log of this name from a file.

    Raises PublicKeyError: it does not hold one, or the key has another name than the log's;
    OSError: the file cannot be read.
    """
    key = _read_vkey(path, log=False)
    if key.kind != ML_DSA_44 or key.name != log:
        raise PublicKeyError(f"{path.name} is not an ML-DSA-44 key of {log}: {AGAIN}")
    return key


def required_ml_dsa_key(directory: Path, log: str) -> NoteVerifier | None:
    """Return the log's ML-DSA-44 key if the directory of its keys has one: it is then required.

    Otherwise nothing would notice a change in its signature line. Raises as `read_ml_dsa_key`.
    """
    path = directory / LOG_ML_DSA_KEY
    return read_ml_dsa_key(path, log) if path.is_file() else None


def read_witness_key(path: Path) -> NoteVerifier:
    """Read a witness's verifier key from a file. Raises as `read_log_key`."""
    return _read_vkey(path, log=False)


def read_issuer(path: Path) -> EllipticCurvePublicKey:
    """Read the issuer's ECDSA P-256 key from a PEM file.

    Raises PublicKeyError: it does not hold one; OSError: the file cannot be read.
    """
    pem = path.read_bytes()
    if b"PRIVATE KEY" in pem:
        raise PublicKeyError(
            f"{path.name} holds a private key: tell the operator, since whoever saw it can "
            "issue, and ask for the public half of another"
        )
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise PublicKeyError(f"{path.name} is not a public key in PEM: {AGAIN}") from None
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
        raise PublicKeyError(
            f"{path.name} is not an ECDSA P-256 key, and issuers use no other: {AGAIN}"
        )
    return key


def _read_vkey(path: Path, *, log: bool) -> NoteVerifier:
    try:
        text = path.read_bytes().decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError:
        raise PublicKeyError(f"{path.name} does not hold a note's verifier key") from None
    try:
        return parse_log_vkey(text) if log else parse_vkey(text)
    except NoteError as error:
        raise PublicKeyError(f"{path.name}: {error.detail}") from None
