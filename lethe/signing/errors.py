"""Every defect of a key or signed request, each as its own problem."""

from typing import ClassVar

from lethe.errors import LetheError


class KeyFormatError(LetheError):
    """Key material that is not an Ed25519 or ECDSA P-256 key in PEM."""

    slug, title, status = "key-format", "Not a usable key", 400


class SignatureError(LetheError):
    """Root of all reasons to refuse a signed request; never raised itself."""

    slug, title = "signature-refused", "The signature is refused"
    status: ClassVar[int] = 401


class SignatureMissingError(SignatureError):
    """No signature with the tag of erasure requests."""

    slug, title = "signature-missing", "No signature"


class SignatureMalformedError(SignatureError):
    """Signature fields that cannot be read, or that mean more than one thing."""

    slug, title, status = "signature-malformed", "Malformed signature", 400


class SignatureIncompleteError(SignatureError):
    """A required component or parameter is not covered."""

    slug, title, status = "signature-incomplete", "Incomplete signature", 400


class SignatureWindowError(SignatureError):
    """`expires` is not after `created`, or too long after it."""

    slug, title, status = "signature-window", "Unacceptable signature window", 400


class SignatureNotYetValidError(SignatureError):
    """`created` lies in the future by more than the allowed clock skew."""

    slug, title = "signature-not-yet-valid", "Signature not yet valid"


class SignatureExpiredError(SignatureError):
    """`expires` lies in the past by more than the allowed clock skew."""

    slug, title = "signature-expired", "Signature expired"


class SignatureInvalidError(SignatureError):
    """The key did not sign this request."""

    slug, title = "signature-invalid", "Invalid signature"


class DigestMismatchError(SignatureError):
    """The arrived body does not match Content-Digest."""

    slug, title, status = "digest-mismatch", "The body does not match its digest", 400


class KeyUnknownError(SignatureError):
    """No key is registered under the keyid, or it was revoked."""

    slug, title = "key-unknown", "Unknown key"


class KeyNotEntitledError(SignatureError):
    """The key is valid but may not do this. Raised by the service."""

    slug, title, status = "key-not-entitled", "Key not entitled", 403


class SignatureReplayedError(SignatureError):
    """(keyid, nonce) was seen before. Raised by the service, which remembers nonces."""

    slug, title = "signature-replayed", "Signature replayed"
