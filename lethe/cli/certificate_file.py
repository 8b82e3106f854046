"""A certificate file whose content a command reads without verifying it."""

from pathlib import Path

from lethe.certificates.bundle import MAX_BUNDLE, Bundle, parse_bundle
from lethe.certificates.errors import CertificateError
from lethe.certificates.statement import Statement, parse_statement
from lethe.cli.options import plain
from lethe.errors import LetheError


def read_certificate(file: Path) -> tuple[Bundle, Statement]:
    """Return the bundle and the statement of a certificate file; no signature is checked.

    Raises CertificateError, which names the file: it is not a certificate; OSError: it cannot
    be read.
    """
    with file.open("rb") as opened:
        data = opened.read(MAX_BUNDLE + 1)  # one byte more is enough to be refused
    try:
        bundle = parse_bundle(data)
        return bundle, parse_statement(bundle.payload)
    except LetheError as error:
        raise CertificateError(
            f"{plain(file.name)} is not a certificate: {error.detail}"
        ) from None
