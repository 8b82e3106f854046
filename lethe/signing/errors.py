"""Every defect of a key or signed request, each as its own problem."""

from typing import ClassVar

from lethe.errors import LetheError


class KeyFormatError(LetheError):
    """Key material that is not an Ed25519 or ECDSA P-256 key in PEM."""

    slug = "key-format"
    title = "Not a usable key"
    status = 400


class SignatureError(LetheError):
    """Root of all reasons to refuse a signed request; never raised itself."""

    slug = "signature-refused"
    title = "The signature is refused"
    status: ClassVar[int] = 401


class SignatureMissingError(SignatureError):
    """No signature with the tag of erasure requests."""

    slug = "signature-missing"
    title = "No signature"


class SignatureMalformedError(SignatureError):
    """Signature fields that cannot be read, or that mean more than one thing."""

    slug = "signature-malformed"
    title = "Malformed signature"
    status = 400


class SignatureIncompleteError(SignatureError):
    """A required component or parameter is not covered."""

    slug = "signature-incomplete"
    title = "Incomplete signature"
    status = 400


class SignatureWindowError(SignatureError):
    """`expires` is not after `created`, or too long after it."""

    slug = "signature-window"
    title = "Unacceptable signature window"
    status = 400


class SignatureNotYetValidError(SignatureError):
    """`created` lies in the future by more than the allowed clock skew."""

    slug = "signature-not-yet-valid"
    title = "Signature not yet valid"


class SignatureExpiredError(SignatureError):
    """`expires` lies in the past by more than the allowed clock skew."""

    slug = "signature-expired"
    title = "Signature expired"


class SignatureInvalidError(SignatureError):
    """The key did not sign this request."""

    slug = "signature-invalid"
    title = "Invalid signature"


class DigestMismatchError(SignatureError):
    """The arrived body does not match Content-Digest."""

    slug = "digest-mismatch"
    title = "The body does not match its digest"
    status = 400


class KeyUnknownError(SignatureError):
    """No key is registered under the keyid, or it was revoked."""

    slug = "key-unknown"
    title = "Unknown key"


class KeyNotEntitledError(SignatureError):
    """The key is valid but may not do this. Raised by the service."""

    slug = "key-not-entitled"
    title = "Key not entitled"
    status = 403


class SignatureReplayedError(SignatureError):
    """(keyid, nonce) was seen before. Raised by the service, which remembers nonces."""

    slug = "signature-replayed"
    title = "Signature replayed"
