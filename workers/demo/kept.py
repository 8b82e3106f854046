"""The files of a certificate in the demonstration's directory, written in this one place.

They are named after the id inside the certificate. The request's own id would do as well for
finding them, but it opens the request to whoever reads it (ADR 0003), and certificates are
shown.
"""

from pathlib import Path

from lethe.certificates.bundle import parse_bundle
from lethe.certificates.statement import parse_statement
from lethe.client import Client


def certificate_file(out: Path, certificate_id: str) -> Path:
    """Return where the certificate of this id is."""
    return out / "certificates" / f"{certificate_id}.sigstore.json"


def evidence_file(out: Path, certificate_id: str) -> Path:
    """Return where the evidence of the certificate of this id is."""
    return out / "evidence" / f"{certificate_id}.json"


def keep_certificate(out: Path, requester: Client, request_id: str) -> str:
    """Write the certificate and the evidence of a request; returns the certificate's id."""
    bundle, evidence = requester.certificate(request_id), requester.evidence(request_id)
    certificate_id = parse_statement(parse_bundle(bundle).payload).predicate.certificate_id
    certificate_file(out, certificate_id).write_bytes(bundle)
    evidence_file(out, certificate_id).write_bytes(evidence)
    return certificate_id
