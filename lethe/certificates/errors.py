"""The error root of the certificate room: what does not hold is named, never a crash."""

from lethe.errors import LetheError


class CertificateError(LetheError):
    """Root of what is wrong with a certificate, its envelope, statement or evidence."""

    slug = "certificate-invalid"
    title = "The certificate is invalid"
    status = 400


class ShapeError(CertificateError):
    """A document that lacks a member, has one too many, or spells a value its own way.

    The message names the place by the format's own member names and what belongs there;
    it repeats nothing that the document holds.
    """

    slug = "malformed-document"
    title = "Malformed document"

    def __init__(self, problem: str, path: str = "") -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"{path or 'the document'} {problem}")

    def inside(self, name: str) -> "ShapeError":
        """The same problem, seen from the member `name` that encloses it."""
        joint = "." if self.path and not self.path.startswith("[") else ""
        return ShapeError(self.problem, f"{name}{joint}{self.path}")


class EnvelopeError(CertificateError):
    """A DSSE envelope whose signature is not the expected key's over its payload."""

    slug = "envelope-invalid"
    title = "The envelope's signature does not hold"


class RemovalError(CertificateError):
    """Retained-set proofs that do not show what they claim to show."""

    slug = "removal-unproven"
    title = "Removal not proven"
