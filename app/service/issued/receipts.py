"""COSE receipts of certificates, made from a certificate file that our keys verify."""

from app.keys.issuer import issuer_keys
from app.keys.log import logged_keys
from app.ledger.receipt import EntryReceipt
from app.ledger.sequencer import Ledger
from app.problems import ReceiptRefusedError
from app.service.context import Services
from app.service.issued import certificates
from lethe.certificates.bundle import parse_bundle
from lethe.certificates.issuers import IssuerKeys
from lethe.certificates.verify import verify_certificate


def of_request(services: Services, request_id: str) -> bytes:
    """Return the receipt of a request's certificate, the same bytes every time.

    Raises:
        NotFoundError: No such request.
        NotIssuedError: The request is not certified.
        CertificateChangedError: The stored certificate is another request's.
        ReceiptRefusedError: The stored certificate does not verify.
    """
    file = certificates.bundle(services, request_id)
    return of_file(services.ledger, issuer_keys(services.settings, services.ledger), file)


def of_file(ledger: Ledger, issuers: IssuerKeys, file: bytes) -> bytes:
    """Return the receipt of a certificate file's log entry.

    Its subject names the certificate, so the file is verified first: otherwise a forged row or
    file could have another name signed. Raises ReceiptRefusedError if the file is not a
    certificate of this log and issuer.
    """
    verdict = verify_certificate(file, log=logged_keys(ledger), issuer=issuers)
    if verdict.result != "PASS" or verdict.statement is None:
        raise ReceiptRefusedError(
            "the certificate does not verify with the keys of this installation: "
            "`lethe certificate verify` names the step"
        )
    entry = parse_bundle(file).entry
    proof = entry.inclusion_proof
    return ledger.cose_receipt(
        EntryReceipt(
            entry.log_index,
            proof.tree_size,
            entry.canonicalized_body,
            proof.hashes,
            proof.checkpoint.envelope,
        ),
        f"urn:uuid:{verdict.statement.predicate.certificate_id}",
    )
