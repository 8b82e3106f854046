"""Certificates: built from the log and the database, and verified.

Write access to the database is enough to exchange the certificates of two requests, and each
still verifies. So a certificate is served only for the request that it names, and evidence only
if the certificate names it.
"""

import time
from contextlib import suppress
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from sqlmodel import Session, select

from app.keys.issuer import issuer_keys
from app.keys.log import logged_keys
from app.keys.trust_root import trust_root
from app.problems import CertificateChangedError, NotFoundError, NotIssuedError
from app.reconcile.model_events import service_key_events
from app.service.context import Services
from app.service.requests import find
from app.vault.request_ref import request_ref
from app.witnesses.rows import Rows
from lethe.canonical import parse_base64
from lethe.certificates.bundle import build_bundle
from lethe.certificates.statement import Predicate, parse_statement
from lethe.certificates.verify import Verdict, verify_certificate
from lethe.errors import LetheError
from lethe.log.key_changes import ML_DSA
from lethe.log.note import NoteError, read_note
from lethe.signing.keys import public_pem
from models import Artifact, Certificate, LogCheckpoint, LogEntry, Verification

FRESH_S = 60.0  # how long a trust root is reused
_REMEDY = (
    "somebody changed or exchanged rows of the database: run `lethe log fsck`, find out who, "
    "and restore the tables erasure_requests, certificates and verifications from a backup"
)
OTHER = f"the stored certificate is not the one of this request: {_REMEDY}"
OTHER_EVIDENCE = f"the stored evidence is not what the request's certificate names: {_REMEDY}"


def bundle(services: Services, request_id: str) -> bytes:
    """Return a request's certificate, the same bytes every time.

    The proof is always taken in the smallest checkpointed tree that holds the leaf, or in the
    first that witnesses were asked for (`app.witnesses.rows`), so the file needs no storage of
    its own and cannot drift from the log.

    Raises:
        NotFoundError: No such request.
        NotIssuedError: The request is not certified.
        CertificateChangedError: The stored file is another request's, or no certificate.
        NotWitnessedError: Its checkpoint waits for a quorum of witnesses.
    """
    with services.reading() as session:
        row, _ = _issued(services, session, request_id)
        leaf = session.get_one(LogEntry, row.log_index).leaf
        note = Rows(services.ledger).note_for(session, row.log_index)
    if note is None:
        receipt = services.ledger.receipt(row.log_index)
        note, proof = receipt.checkpoint, list(receipt.hashes)
    else:
        size = services.ledger.open(note).size
        proof = services.ledger.inclusion(row.log_index, size)
    _, key = logged_keys(services.ledger).open(note)
    return build_bundle(
        row.envelope,
        issuer_keyid=row.issuer_keyid,
        leaf=leaf,
        index=row.log_index,
        proof=proof,
        checkpoint_note=note,
        log=key.verifier,
    )


def evidence(services: Services, request_id: str) -> bytes:
    """Return a certified request's evidence file.

    Raises:
        NotFoundError: No such request.
        NotIssuedError: The request is not certified.
        CertificateChangedError: Certificate or evidence is another request's.
        ShreddedError: Its retention has ended.
    """
    with services.reading() as session:
        _, predicate = _issued(services, session, request_id)
        row = session.get_one(Verification, request_id)
        file = services.artifacts.get(session, row.evidence_id)
    if sha256(file).hexdigest() != predicate.retained_set.removal_proof:
        raise CertificateChangedError(OTHER_EVIDENCE)
    return file


def scores(services: Services, digest: str) -> bytes:
    """Return the scores file of a digest (hex SHA-256).

    They cover many people's rows, so holding the id of one request gives no access.

    Raises NotFoundError: no judgement has scores of this digest; ShreddedError: its retention
    has ended.
    """
    with services.reading() as session:
        query = select(Artifact.id).where(Artifact.digest == digest, Artifact.kind == "scores")
        artifact_id = session.exec(query).first()
        if artifact_id is None:
            raise NotFoundError("no verdict here rests on scores of this digest")
        return services.artifacts.get(session, artifact_id)


def stated(row: Certificate, *refs: str) -> Predicate:
    """Return the predicate of a stored certificate, which must name the request of these refs.

    Raises CertificateChangedError if it is of another request, or no certificate.
    """
    try:
        found = parse_statement(parse_base64(row.envelope["payload"])).predicate
    except (LetheError, LookupError, TypeError, ValueError):
        raise CertificateChangedError(OTHER) from None
    if {found.request_ref} != set(refs):
        raise CertificateChangedError(OTHER)
    return found


def _issued(
    services: Services, session: Session, request_id: str
) -> tuple[Certificate, Predicate]:
    """Return a request's certificate. Raises as `bundle`, except NotWitnessedError.

    The reference is also compared with the id: an attacker who exchanges certificates can
    exchange the references of their requests as well.
    """
    request = find(session, request_id)
    row = session.get(Certificate, request_id)
    if row is None:
        raise NotIssuedError("the request has no certificate yet", state=request.state)
    return row, stated(row, request.ref, request_ref(services.root_secret, request_id))


def verify(
    services: Services, data: bytes, evidence_file: bytes | None, model: bytes | None
) -> Verdict:
    """Return the numbered verdict on a bundle under all keys that this service ever had."""
    return verify_certificate(
        data,
        log=logged_keys(services.ledger),
        issuer=issuer_keys(services.settings, services.ledger),
        model=model,
        evidence=evidence_file,
    )


def issuer_key(services: Services) -> tuple[EllipticCurvePublicKey, str]:
    """Return the issuer's latest public key and its name."""
    latest = issuer_keys(services.settings, services.ledger).keys[-1]
    return latest.key, latest.keyid


def published_trust_root(services: Services) -> bytes:
    """Return the trust root of the latest checkpoint, at most FRESH_S old.

    Anybody may request it, and making one costs signatures, possibly of a key in an HSM.

    Raises as `app.keys.trust_root.trust_root`.
    """
    note = services.ledger.latest().note
    at, made = services.seen.get("trust-root", (float("-inf"), None))
    if time.monotonic() - at < FRESH_S and isinstance(made, tuple) and made[0] == note:
        found: bytes = made[1]
        return found
    root = trust_root(services.settings, services.ledger)
    services.seen["trust-root"] = (time.monotonic(), (note, root))
    return root


def trust_root_if_needed(services: Services) -> str:
    """Return the trust root if the log has an entry on keys, else an empty string."""
    if not service_key_events(services.ledger).entries:
        return ""
    return published_trust_root(services).decode()


def required_vkeys(services: Services) -> str:
    """Return the log's verifier keys that must have signed each certificate, one on each line.

    The ML-DSA-44 key is the second, if the log began with one. A log that got it later issued
    certificates without its line, and a page that requires it would call them not authentic.
    """
    ledger = services.ledger
    required = [ledger.verifier]
    with services.reading() as session:
        first = session.get(LogCheckpoint, 0)  # None if the log was recovered from a mirror
    if first is not None:
        with suppress(NoteError):  # no second key signed it
            read_note(first.note, ledger.known(ML_DSA))
            required += ledger.signing(ML_DSA)[:1]
    return "\n".join(key.vkey for key in required)


def issuer_pem(services: Services) -> str:
    """Return the issuer's latest public key in PEM."""
    return public_pem(issuer_key(services)[0])
