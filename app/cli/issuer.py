"""The issuer's public key, which its holder got from an operator and cannot make."""

from pathlib import Path

import click
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

AGAIN = "get it again from the operator, over a channel you trust"


def read_issuer(path: Path) -> EllipticCurvePublicKey:
    """Return the ECDSA P-256 key that a PEM file holds.

    Raises:
        click.UsageError: It holds none; the message names the file and what to do.
    """
    pem = path.read_bytes()
    if b"PRIVATE KEY" in pem:
        raise click.UsageError(
            f"{path.name} holds a private key: tell the operator, since whoever saw it can "
            "issue, and ask for the public half of another"
        )
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise click.UsageError(f"{path.name} is not a public key in PEM: {AGAIN}") from None
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
        raise click.UsageError(
            f"{path.name} is not an ECDSA P-256 key, and issuers use no other: {AGAIN}"
        )
    return key
