"""Sign and verify HTTP requests: RFC 9421 with RFC 9530 digests, in Lethe's profile.

The profile: a signature tagged `lethe-erasure` covers method, target URI and, if there is a
body, content type and digest; it is valid for at most ten minutes and carries a nonce. The
service must check that (keyid, nonce) is fresh and that the key is authorised; this module has
no state and no clock.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography.exceptions import InvalidSignature as BadSignature
from http_message_signatures import (
    HTTPMessageSignaturesException,
    HTTPMessageSigner,
    HTTPMessageVerifier,
    HTTPSignatureAlgorithm,
    MappingKeyResolver,
)
from http_message_signatures.algorithms import ECDSA_P256_SHA256, ED25519

from lethe.signing.digest import ContentDigest, check_content_digest, format_content_digest
from lethe.signing.errors import (
    KeyUnknownError,
    SignatureExpiredError,
    SignatureIncompleteError,
    SignatureInvalidError,
    SignatureMalformedError,
    SignatureNotYetValidError,
    SignatureWindowError,
)
from lethe.signing.fields import (
    KEYID_LENGTH,
    NONCE_LENGTH,
    TAG,
    SignatureFields,
    check_visible,
    field_lines,
    parse_fields,
)
from lethe.signing.keys import Algorithm, PrivateKey, PublicKey, algorithm_of
from lethe.signing.plain import parse_plain

LABEL = "lethe"
CLOCK_SKEW = timedelta(seconds=5)
MAX_WINDOW = timedelta(minutes=10)  # maximum validity of a signature
DEFAULT_LIFETIME = timedelta(minutes=5)
COVERED_ALWAYS = ("@method", "@target-uri")
COVERED_WITH_BODY = ("content-type", "content-digest")
ALGORITHMS: dict[Algorithm, type[HTTPSignatureAlgorithm]] = {
    "ed25519": ED25519,
    "ecdsa-p256-sha256": ECDSA_P256_SHA256,
}

Resolve = Callable[[str], tuple[PublicKey, Algorithm] | None]


@dataclass(frozen=True, slots=True)
class SignedBy:
    """The signer and the covered components. Remember the nonce until expires + CLOCK_SKEW."""

    keyid: str
    nonce: str
    created: datetime
    expires: datetime
    covered: frozenset[str]


@dataclass
class _Message:
    """A request with the attributes that the library reads."""

    method: str
    url: str
    headers: Mapping[str, str]


def new_nonce() -> str:
    """Return 192 random bits as 32 visible characters."""
    return secrets.token_urlsafe(24)


def sign_request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    key: PrivateKey,
    keyid: str,
    *,
    now: datetime,
    nonce: str,
    lifetime: timedelta = DEFAULT_LIFETIME,
) -> dict[str, str]:
    """Return the fields to add: Signature-Input, Signature and, with a body, its digest.

    url is the absolute URL as it will be requested. With a body, headers must hold
    Content-Type; a Content-Digest among them must be replaced by the one returned. An
    Idempotency-Key is covered too, so that an intermediary cannot turn the request into a
    repetition of another.

    Raises SignatureError: verify_head would refuse the result, whatever the key;
    KeyFormatError: the key is of a kind that cannot sign requests.
    """
    assert now.tzinfo is not None
    algorithm = ALGORITHMS[algorithm_of(key)]
    if not timedelta(0) < lifetime <= MAX_WINDOW:
        raise SignatureWindowError(f"a signature lives up to {MAX_WINDOW}, not {lifetime}")
    check_visible("nonce", nonce, NONCE_LENGTH)
    check_visible("keyid", keyid, KEYID_LENGTH)
    covered = list(COVERED_ALWAYS)
    lines = field_lines(headers)
    added = {}
    if body:
        if "content-type" not in lines:
            raise SignatureIncompleteError("a request with a body needs a Content-Type")
        covered += COVERED_WITH_BODY
        added["Content-Digest"] = format_content_digest(body)
    if "idempotency-key" in lines:
        covered.append("idempotency-key")
    replaced = {name.lower() for name in added}
    kept = {
        name: value
        for name, value in headers.items()
        if name.lower() in covered and name.lower() not in replaced
    }
    message = _Message(method, url, {**kept, **added})
    signer = HTTPMessageSigner(
        signature_algorithm=algorithm,
        key_resolver=MappingKeyResolver(public_keys={}, private_keys={keyid: key}),
    )
    try:
        signer.sign(
            message,
            key_id=keyid,
            created=now,
            expires=now + lifetime,
            nonce=nonce,
            label=LABEL,
            tag=TAG,
            covered_component_ids=covered,
            use_existing_digest=bool(body),
        )
    except HTTPMessageSignaturesException:
        raise SignatureMalformedError(
            "the request cannot be signed: the URL must be absolute and percent-encoded, "
            "the method uppercase, covered header values printable ASCII"
        ) from None
    return {
        **added,
        "Signature-Input": message.headers["Signature-Input"],
        "Signature": message.headers["Signature"],
    }


def verify_head(
    method: str,
    target_uri: str,
    headers: Mapping[str, str],
    resolve: Resolve,
    *,
    now: datetime,
    has_body: bool,
) -> SignedBy:
    """Verify the signature of a request, whose body may come later, and return its signer.

    target_uri is the absolute URL as the client saw it: behind a proxy it must be rebuilt.
    headers.items() should yield repeated fields separately, as Starlette's does. resolve
    returns the key of a keyid, or None if unknown; its exceptions are not caught. has_body says
    whether a body is announced: its type and digest must then be covered. The request is
    authentic only once `check_body` has accepted the body: until the signature is verified,
    anybody may have written the digest.

    No headers can cause an exception other than SignatureError. Raises SignatureError: one of
    its subclasses except DigestMismatchError, in the order of the steps in the code.
    """
    assert now.tzinfo is not None
    lines = field_lines(headers)
    plain = parse_plain(lines)
    fields = parse_fields(lines) if plain is None else plain.fields
    _check_coverage(fields, lines, has_body)
    _check_window(fields, now)
    resolved = resolve(fields.keyid)
    if resolved is None:
        raise KeyUnknownError("no key is registered under this keyid: register it first")
    key, algorithm = resolved
    assert algorithm == algorithm_of(key)
    if fields.alg not in (None, algorithm):  # RFC 9421 section 3.2, step 6.5
        raise SignatureInvalidError(f"the key signs with {algorithm}, the signature does not")
    base = None if plain is None else plain.base(method, target_uri, lines)
    if plain is None or base is None or not _verifies(key, algorithm, plain.signature, base):
        message = _Message(method, target_uri, headers)
        check_signature(message, fields.keyid, key, algorithm)
    return SignedBy(
        keyid=fields.keyid,
        nonce=fields.nonce,
        created=datetime.fromtimestamp(fields.created, UTC),
        expires=datetime.fromtimestamp(fields.expires, UTC),
        covered=fields.bare,
    )


class ArrivingBody:
    """The body, given as it arrives, of a request whose head was verified.

    It is authentic only once `check` has returned. Raises DigestMismatchError as
    `ContentDigest`.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        lines = field_lines(headers).get("content-digest")
        self._digest = None if lines is None else ContentDigest(", ".join(lines))

    def update(self, data: bytes) -> None:
        """Take the next bytes. Raises SignatureIncompleteError if no digest covers them."""
        if self._digest is not None:
            self._digest.update(data)
        elif data:
            raise SignatureIncompleteError("the signature does not cover content-digest")

    def check(self) -> None:
        """Accept the whole body. Raises DigestMismatchError if it does not match."""
        if self._digest is not None:
            self._digest.check()


def check_body(headers: Mapping[str, str], body: bytes) -> None:
    """Accept `body` if it matches the digest that a verified head covers.

    Raises SignatureIncompleteError: there is a body and no Content-Digest; DigestMismatchError:
    content-Digest is malformed or does not match the body.
    """
    lines = field_lines(headers)
    if "content-digest" in lines:
        check_content_digest(", ".join(lines["content-digest"]), body)
    elif body:
        raise SignatureIncompleteError("the signature does not cover content-digest")


def _check_coverage(
    fields: SignatureFields, lines: Mapping[str, list[str]], has_body: bool
) -> None:
    required = COVERED_ALWAYS + (COVERED_WITH_BODY if has_body else ())
    # Only whole fields count: `"content-digest";key="sha-256"` leaves other digests unsigned.
    if missing := [name for name in required if name not in fields.bare]:
        raise SignatureIncompleteError(f"the signature does not cover {', '.join(missing)}")
    if len(lines.get("content-type", ())) > 1:
        raise SignatureMalformedError("Content-Type is sent more than once")
    named = {name for name in fields.bare | fields.wrapped if not name.startswith("@")}
    if named - lines.keys():
        raise SignatureIncompleteError("the signature covers a field that was not sent")


def _check_window(fields: SignatureFields, now: datetime) -> None:
    # Integers, not datetimes: the field may hold the year 33 million.
    if not 0 < fields.expires - fields.created <= MAX_WINDOW.total_seconds():
        raise SignatureWindowError(
            f"expires must be after created by at most {MAX_WINDOW.total_seconds():.0f} s"
        )
    skew = CLOCK_SKEW.total_seconds()
    if now.timestamp() < fields.created - skew:
        raise SignatureNotYetValidError("created lies in the future: set the sender's clock")
    if now.timestamp() > fields.expires + skew:
        raise SignatureExpiredError("expires lies in the past: sign again and send at once")


def _verifies(key: PublicKey, algorithm: Algorithm, signature: bytes, base: bytes) -> bool:
    try:
        ALGORITHMS[algorithm](public_key=key).verify(signature=signature, message=base)
    except (BadSignature, HTTPMessageSignaturesException):
        return False
    return True


class _Verifier(HTTPMessageVerifier):
    def validate_created_and_expires(  # type: ignore[no-untyped-def]
        self, sig_input, max_age=None
    ) -> None:
        """Do nothing: the library reads the wall clock; _check_window uses the given time."""


def check_signature(
    message: _Message, keyid: str, key: PublicKey, algorithm: Algorithm
) -> None:
    """Verify a signature in general (RFC 9421). Raises a SignatureError otherwise."""
    verifier = _Verifier(
        signature_algorithm=ALGORITHMS[algorithm],
        key_resolver=MappingKeyResolver(public_keys={keyid: key}, private_keys={}),
    )
    try:
        verifier.verify(
            message, max_age=None, expect_tag=TAG, require_components=COVERED_ALWAYS
        )
    except HTTPMessageSignaturesException as error:
        if isinstance(error.__cause__, BadSignature):
            raise SignatureInvalidError(
                "the key registered under this keyid did not sign this request: check that "
                "key and keyid belong together, that the URL is the service's own, and that "
                "no proxy changes method, URL, signed fields or parameters"
            ) from None
        raise SignatureMalformedError(
            "the covered components cannot be computed for this request"
        ) from None
