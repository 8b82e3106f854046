"""The files of a certificate in the demonstration's directory, written in this one place.

They are named after the id inside the certificate. The request's own id would identify them
too, but it gives access to the request (ADR 0003), and certificates are shown to others.
"""

from pathlib import Path

from lethe.certificates.bundle import parse_bundle
from lethe.certificates.case_summary import check_summary
from lethe.certificates.keys import read_issuer
from lethe.certificates.statement import parse_statement
from lethe.client import Client


def certificate_file(out: Path, certificate_id: str) -> Path:
    """Return the path of the certificate with this id."""
    return out / "certificates" / f"{certificate_id}.sigstore.json"


def evidence_file(out: Path, certificate_id: str) -> Path:
    """Return the path of the evidence of the certificate with this id."""
    return out / "evidence" / f"{certificate_id}.json"


def keep_certificate(out: Path, requester: Client, request_id: str) -> str:
    """Write the certificate and the evidence of a request; returns the certificate's id."""
    bundle, evidence = requester.certificate(request_id), requester.evidence(request_id)
    certificate_id = parse_statement(parse_bundle(bundle).payload).predicate.certificate_id
    certificate_file(out, certificate_id).write_bytes(bundle)
    evidence_file(out, certificate_id).write_bytes(evidence)
    return certificate_id


def answer_file(out: Path) -> Path:
    """Return the path of the signed answer to a person's case."""
    return out / "evidence" / "answer.json"


def keep_answer(out: Path, answer: bytes, certificate_id: str) -> None:
    """Write the signed answer to a case whose only part has this certificate.

    Raises LetheError if the issuer did not sign it, or it names another certificate.
    """
    certificate = certificate_file(out, certificate_id).read_bytes()
    check_summary(answer, read_issuer(out / "keys" / "issuer.pem"), [certificate])
    answer_file(out).write_bytes(answer)
