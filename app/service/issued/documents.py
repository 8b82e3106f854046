"""Certificates as documents for people, verified with the service's keys when rendered."""

from app.service.context import Services
from app.service.issued import certificates
from lethe.report.certificate import Sheet, certificate_html
from lethe.report.pdf import certificate_pdf
from lethe.words.texts import Language, texts


def html(services: Services, request_id: str, language: Language) -> bytes:
    """Return a certificate as an HTML page.

    Raises:
        NotFoundError: No such request.
        NotIssuedError: The request is not certified.
        CertificateChangedError: The stored certificate is another request's.
    """
    return certificate_html(_sheet(services, request_id), texts(language)).encode()


def pdf(services: Services, request_id: str, language: Language) -> bytes:
    """Return a certificate as PDF/A-3b.

    Raises NotFoundError, NotIssuedError, CertificateChangedError: as for the page;
    PdfMissingError: the service is installed without the PDF renderer; PdfTooLongError: it
    would take too long.
    """
    return certificate_pdf(_sheet(services, request_id), texts(language))


def _sheet(services: Services, request_id: str) -> Sheet:
    bundle = certificates.bundle(services, request_id)
    verdict = certificates.verify(services, bundle, None, None)
    # The configured address, never the Host header's: a document is passed on.
    public = services.settings.public_url.rstrip("/")
    return Sheet.of(bundle, verdict, f"{public}/verify" if public else "")
