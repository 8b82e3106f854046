"""Detached signatures of model files, as OpenSSF Model Signing v1.0 defines them.

The issuer signs the SHA-256 of one file, regardless of its name, in a Sigstore bundle without a
log entry. `model_signing verify key` checks it without Lethe's code. Source: predicate type
https://model_signing/signature/v1.0, serialization method `files`.
"""

import hashlib
from typing import Any

from lethe import canonical
from lethe.certificates.bundle import sign_envelope
from lethe.signing.keys import P256Key, public_pem

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PREDICATE_TYPE = "https://model_signing/signature/v1.0"
IN_TOTO = "https://in-toto.io/Statement/v1"
THE_FILE = "."  # the name for a single-file model, which may be renamed


def sign_model(name: str, digest: str, *, issuer: P256Key, issuer_keyid: str) -> bytes:
    """Return the signature file of a model file.

    name: of the model, such as `digits@3`. digest: hex SHA-256 of the file. Raises
    EnvelopeError if the key is not on P-256.
    """
    statement: dict[str, Any] = {
        "_type": IN_TOTO,
        # Over the digests of all files in order; here there is one.
        "subject": [
            {
                "name": name,
                "digest": {"sha256": hashlib.sha256(bytes.fromhex(digest)).hexdigest()},
            }
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": [],
            },
            "resources": [{"name": THE_FILE, "algorithm": "sha256", "digest": digest}],
        },
    }
    # `model_signing` compares this hint with the key that it is given.
    hint = hashlib.sha256(public_pem(issuer.public_key()).encode()).hexdigest()
    bundle = {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": hint}, "tlogEntries": []},
        "dsseEnvelope": sign_envelope(canonical.encode(statement), issuer, issuer_keyid),
    }
    return canonical.encode(bundle)
