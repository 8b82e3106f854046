"""Errors of lethe.certificates: invalid input is reported as one of these, never as a crash."""

from lethe.errors import LetheError


class CertificateError(LetheError):
    """Root of the errors of a certificate, its envelope, statement or evidence."""

    slug, title, status = "certificate-invalid", "The certificate is invalid", 400


class ShapeError(CertificateError):
    """A document with a missing or extra member, or a value in a non-canonical spelling.

    The message names the place by the format's own member names and what is expected there; it
    repeats nothing that the document holds.
    """

    slug, title = "malformed-document", "Malformed document"

    def __init__(self, problem: str, path: str = "") -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"{path or 'the document'} {problem}")

    def inside(self, name: str) -> "ShapeError":
        """Return the same error with `name` prepended to its path."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        return ShapeError(self.problem, f"{name}{joint}{self.path}")


class EnvelopeError(CertificateError):
    """A DSSE envelope whose signature is not the expected key's over its payload."""

    slug, title = "envelope-invalid", "The envelope's signature does not hold"


class RemovalError(CertificateError):
    """Retained-set proofs that do not show what they claim to show."""

    slug, title = "removal-unproven", "Removal not proven"
