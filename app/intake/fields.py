"""Validates the fields of the forms: identity, regulation, and the browser's signature."""

import base64
import binascii

from app.intake.forms import IntakeForm
from app.notices.mail import is_address
from app.service.intake.errors import IntakeIdentityError, IntakeSignatureError
from app.service.intake.request import BY_MAIL, BY_OPERATOR, EMAIL, IntakeRequest
from app.settings import Settings
from lethe.certificates.intake_receipt import BrowserSignature
from lethe.identity import IdentityError, normalise
from lethe.signing.errors import KeyFormatError
from lethe.signing.keys import load_public_key, public_pem

MAX_VALUE = 254  # characters, RFC 5321 section 4.5.3.1.3
MAX_KEY = 400  # characters of base64; a P-256 key has 124


def kinds_of(settings: Settings) -> tuple[str, ...]:
    """Return the kinds of identities besides e-mail addresses."""
    return tuple(dict.fromkeys(one for one in settings.intake_kinds.split(",") if one != ""))


def request_in(form: IntakeForm, settings: Settings) -> IntakeRequest:
    """Return the request in a form.

    Raises IntakeIdentityError if the identity or regulation is missing, invalid or not offered.
    """
    kind, value = form.of("kind"), form.of("value").strip()
    regulation = form.of("regulation")
    refused = IntakeIdentityError("this is no address or number that the page asks for")
    if kind not in (EMAIL, *kinds_of(settings)) or not 0 < len(value) <= MAX_VALUE:
        raise refused
    if regulation not in ("gdpr", "ccpa") or form.of("sure") != "yes":
        raise refused
    try:
        normal = normalise(kind, value)
    except IdentityError:
        raise refused from None
    if not normal or not value.isprintable():
        raise refused
    if kind == EMAIL:
        # Case folding turns other characters into ASCII (ß into ss), so the owner of another
        # mailbox could prove the identity. An IDN domain must be in its xn-- form.
        if not value.isascii() or not is_address(value) or normal != value.lower():
            raise refused
        value = normal
    by_operator = kind != EMAIL or form.of("proof") == "operator"
    return IntakeRequest(
        kind,
        value,
        "ccpa" if regulation == "ccpa" else "gdpr",
        BY_OPERATOR if by_operator else BY_MAIL,
    )


def signature_in(form: IntakeForm) -> BrowserSignature | None:
    """Return the signature of the browser's key, None if there is none.

    Raises IntakeSignatureError if the key or the signature is malformed.
    """
    key, signature = form.of("key"), form.of("signature")
    if not key and not signature:
        return None
    malformed = IntakeSignatureError("the browser's signature cannot be read")
    if len(key) > MAX_KEY or len(signature) > MAX_KEY:
        raise malformed
    try:
        spki = base64.b64decode(key, validate=True)
        made = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        raise malformed from None
    if not made:
        raise malformed
    text = base64.b64encode(spki).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    pem = f"-----BEGIN PUBLIC KEY-----\n{lines}\n-----END PUBLIC KEY-----\n"
    try:
        return BrowserSignature(public_pem(load_public_key(pem.encode())), made)
    except KeyFormatError:
        raise malformed from None
