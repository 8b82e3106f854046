"""The keys that a command verifies with: from key files, or from a trust root."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lethe.cli.options import FILE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    from lethe.certificates.issuers import IssuerKeys
    from lethe.certificates.trust_root import TrustRoot
    from lethe.log.log_keys import LogKeys
    from lethe.log.note import NoteVerifier

trust_root_option = click.option(
    "--trust-root", type=FILE, help="The operator's trust root, in place of both keys."
)


def trusted(
    keys: Path | None,
    trust_root: Path | None,
    log_key: Path | None = None,
    issuer_key: Path | None = None,
    log_mldsa_key: Path | None = None,
) -> tuple["NoteVerifier | LogKeys", "EllipticCurvePublicKey | IssuerKeys", "TrustRoot | None"]:
    """Return the keys of log and issuer, and the trust root that they are from, if any.

    keys: a directory with both. log_key, log_mldsa_key: with a trust root, the known keys.

    Raises UsageError: too many or too few of them are given; PublicKeyError, TrustRootError: a
    file does not hold the expected content.
    """
    from lethe.certificates.keys import (
        ISSUER_KEY,
        LOG_KEY,
        read_issuer,
        read_log_key,
        read_witness_key,
    )

    if trust_root is None:
        if (keys, log_key, issuer_key) == (None, None, None):
            raise click.UsageError(
                f"give --trust-root, or --keys with a directory that has {LOG_KEY} and "
                f"{ISSUER_KEY}"
            )
        log = read_log_key(key_file(log_key, keys, LOG_KEY, "--log-key"))
        return log, read_issuer(key_file(issuer_key, keys, ISSUER_KEY, "--issuer-key")), None
    if keys is not None or issuer_key is not None:
        raise click.UsageError("--trust-root names the keys: leave out --keys and --issuer-key")
    from lethe.certificates.trust_root import parse_trust_root

    known = None if log_key is None else read_log_key(log_key)
    second = None if log_mldsa_key is None else read_witness_key(log_mldsa_key)
    root = parse_trust_root(trust_root.read_bytes(), known, second)
    return root.log, root.issuers, root


def trusted_log(log_key: Path | None, trust_root: Path | None) -> "NoteVerifier | LogKeys":
    """Return the log's key from its file, or its keys from a trust root.

    log_key: beside a trust root the key that is known.

    Raises UsageError: neither is given; PublicKeyError, TrustRootError: a file does not hold
    what it should.
    """
    from lethe.certificates.keys import read_log_key

    known = None if log_key is None else read_log_key(log_key)
    if trust_root is not None:
        from lethe.certificates.trust_root import parse_trust_root

        return parse_trust_root(trust_root.read_bytes(), known).log
    if known is None:
        raise click.UsageError("give --log-key, --trust-root or both")
    return known


def key_file(given: Path | None, keys: Path | None, name: str, option: str) -> Path:
    """Return the given file, or the one with this name in the directory `keys`.

    Raises UsageError if neither is given.
    """
    if given is not None:
        return given
    if keys is None:
        raise click.UsageError(f"give {option}, or --keys with a directory that has {name}")
    if not (keys / name).is_file():
        raise click.UsageError(
            f"the directory of --keys has no {name}: "
            "the operator gives it to you (docs/auditor-guide.md)"
        )
    return keys / name
