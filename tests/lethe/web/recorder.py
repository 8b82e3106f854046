"""Records certificates that installations of the tests issue as tests/vectors/certificates.

    LETHE_RECORD=1 python -m pytest -p tests.lethe.web.recorder -m "" -n 0 TEST...

One file for each method, class of guarantee and kind of erasure, the first that was issued.
"""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from lethe.certificates.bundle import build_bundle, hashedrekord_leaf
from lethe.certificates.statement import ATTEMPTS, Predicate, parse_statement
from lethe.signing.keys import public_pem
from tests.lethe.certificates.build import LocalLog
from tests.lethe.web.second import base64
from workers.jobs import certify, verify

VECTORS = Path(__file__).parents[2] / "vectors" / "certificates"
# Parameters that tell kinds of one method apart.
KINDS = ("estimator", "script", "shards", "noise.sigma", "data")

_evidence: dict[str, bytes] = {}
_build_evidence = vars(verify)["build_evidence"]
_sign_envelope = vars(certify)["sign_envelope"]


def name_of(predicate: Predicate) -> str:
    """Return the file's name: method, class, and what makes it another kind."""
    parameters = predicate.method.parameters
    parts = [predicate.method.id, predicate.guarantee.class_]
    parts += [name for name in KINDS if parameters.get(name, "rows") != "rows"]
    parts += ["escalated"] if ATTEMPTS in parameters else []
    parts += [predicate.scope.level] if predicate.scope.level != "sample" else []
    return "-".join(parts)


def _record(payload: bytes, key: EllipticCurvePrivateKey, keyid: str) -> dict[str, Any]:
    envelope: dict[str, Any] = _sign_envelope(payload, key, keyid)
    predicate = parse_statement(payload).predicate
    evidence = _evidence.get(predicate.retained_set.removal_proof)
    path = VECTORS / f"{name_of(predicate)}.json"
    if evidence is not None and not path.exists():
        log = LocalLog()  # of as many entries as the log had before the request
        for number in range(predicate.request_log_index + 1):
            log.append(b"%d" % number)
        leaf = hashedrekord_leaf(envelope, key.public_key())
        index = log.append(leaf)
        vector = {
            "log": log.verifier.vkey,
            "issuer": public_pem(key.public_key()),
            "bundle": base64(
                build_bundle(
                    envelope,
                    issuer_keyid=keyid,
                    leaf=leaf,
                    index=index,
                    proof=log.proof(index),
                    checkpoint_note=log.checkpoint(),
                    log=log.verifier,
                )
            ),
            "evidence": base64(evidence),
        }
        path.write_text(json.dumps(vector, indent=1) + "\n", encoding="utf-8")
    return envelope


def _record_evidence(*given: Any, **named: Any) -> bytes:
    evidence: bytes = _build_evidence(*given, **named)
    _evidence[sha256(evidence).hexdigest()] = evidence
    return evidence


if os.environ.get("LETHE_RECORD"):
    vars(certify)["sign_envelope"] = _record
    vars(verify)["build_evidence"] = _record_evidence
