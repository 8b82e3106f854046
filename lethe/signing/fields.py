"""Strict parsing of the Signature-Input and Signature fields (RFC 9421 section 4).

The library parses them again, by the same grammar, when it verifies the signature. This parser
runs first because its errors say what is wrong; the library has only one error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import http_sf

from lethe.signing.errors import (
    SignatureIncompleteError,
    SignatureMalformedError,
    SignatureMissingError,
)

TAG = "lethe-erasure"
MAX_FIELD = 8192  # characters; a signature needs about 400; limits parsing of hostile input
KEYID_LENGTH = (1, 128)  # characters; the column that stores it is as wide
NONCE_LENGTH = (16, 128)  # 16 characters of base64 are 96 bits: no collision by chance
SIGNATURE_BYTES = 64  # Ed25519 (RFC 8032) and raw r || s of P-256 (RFC 9421 section 3.3.4)
KNOWN = {"created", "expires", "nonce", "keyid", "tag", "alg"}
REQUIRED = ("created", "expires", "nonce", "keyid")


@dataclass(frozen=True, slots=True)
class SignatureFields:
    """The claims of one signature, untrusted until it is verified.

    bare: names of components covered whole; wrapped: names covered with a parameter such as
    `;key`. created and expires are seconds since the epoch. alg is None if the sender left it
    out.
    """

    bare: frozenset[str]
    wrapped: frozenset[str]
    created: int
    expires: int
    nonce: str
    keyid: str
    alg: str | None


def field_lines(headers: Mapping[str, str]) -> dict[str, list[str]]:
    """Group values by lowercase name; `headers.items()` may repeat a name."""
    lines: dict[str, list[str]] = {}
    for name, value in headers.items():
        lines.setdefault(name.lower(), []).append(value)
    return lines


def parse_fields(lines: Mapping[str, list[str]]) -> SignatureFields:
    """Return the one signature with Lethe's tag.

    Signatures with other tags are ignored: a proxy may add its own.

    Raises:
        SignatureMissingError: No field, or no signature with the tag.
        SignatureIncompleteError: A parameter is missing.
        SignatureMalformedError: The fields break the grammar or our limits, or several
            signatures carry the tag, so the signer is ambiguous.
    """
    inputs = _dictionary("signature-input", lines)
    signatures = _dictionary("signature", lines)
    if inputs.keys() != signatures.keys():
        raise SignatureMalformedError("Signature-Input and Signature must have the same labels")
    for member in inputs.values():
        if not isinstance(member[0], list):
            raise SignatureMalformedError(
                "a member of Signature-Input must be a list of components in parentheses"
            )
    ours = [label for label, member in inputs.items() if member[1].get("tag") == TAG]
    if len(ours) > 1:
        raise SignatureMalformedError(f"more than one signature has the tag {TAG}")
    if not ours:
        if any("tag" not in member[1] for member in inputs.values()):
            raise SignatureIncompleteError(f'the signature lacks the parameter tag="{TAG}"')
        raise SignatureMissingError(f"no signature has the tag {TAG}")
    signature = signatures[ours[0]][0]
    if not isinstance(signature, bytes) or len(signature) != SIGNATURE_BYTES:
        raise SignatureMalformedError(
            f"the signature is not {SIGNATURE_BYTES} bytes; for ECDSA send r || s, not DER"
        )
    components, parameters = inputs[ours[0]]
    return _signature_fields(components, parameters)


def check_visible(name: str, value: object, length: tuple[int, int]) -> str:
    """Return `value` if it is a string of visible ASCII within `length`.

    Raises SignatureMalformedError otherwise.
    """
    low, high = length
    # isinstance also excludes an sf token: RFC 9421 section 2.3 wants strings here.
    if (
        not isinstance(value, str)
        or not low <= len(value) <= high
        or not all("!" <= character <= "~" for character in value)
    ):
        raise SignatureMalformedError(
            f"{name} must be a string of {low} to {high} visible ASCII characters"
        )
    return value


def _dictionary(name: str, lines: Mapping[str, list[str]]) -> dict[str, Any]:
    def refuse_duplicate(key: str, context: str) -> None:
        # A parser would silently take the last (RFC 9651 section 4.2), for parameters too.
        raise ValueError("duplicate")

    value = ", ".join(lines.get(name, ()))
    if not value.strip():
        raise SignatureMissingError(
            "the request is not signed: send Signature-Input and Signature (RFC 9421)"
        )
    if len(value) > MAX_FIELD:
        raise SignatureMalformedError(f"{name} is longer than {MAX_FIELD} characters")
    try:
        members = http_sf.parse(
            value.strip(" \t").encode("ascii"),
            tltype="dictionary",
            on_duplicate_key=refuse_duplicate,
        )
    except ValueError:
        raise SignatureMalformedError(
            f"{name} is not a dictionary of structured fields without duplicates"
        ) from None
    assert isinstance(members, dict)
    return members


def _signature_fields(components: Any, parameters: Mapping[str, Any]) -> SignatureFields:
    if missing := [name for name in REQUIRED if name not in parameters]:
        raise SignatureIncompleteError(
            f"the signature lacks the parameter {' and '.join(missing)}"
        )
    if parameters.keys() - KNOWN:
        raise SignatureMalformedError(
            f"the signature has a parameter other than {', '.join(sorted(KNOWN))}"
        )
    for name in ("created", "expires"):
        if type(parameters[name]) is not int:  # bool is an int to isinstance
            raise SignatureMalformedError(f"{name} must be an integer, seconds since 1970")
    alg = parameters.get("alg")
    if alg is not None and not isinstance(alg, str):
        raise SignatureMalformedError("alg must be a string")
    if not all(isinstance(name, str) for name, _ in components):
        raise SignatureMalformedError("a covered component is not a string")
    return SignatureFields(
        bare=frozenset(name for name, options in components if not options),
        wrapped=frozenset(name for name, options in components if options),
        created=parameters["created"],
        expires=parameters["expires"],
        nonce=check_visible("nonce", parameters["nonce"], NONCE_LENGTH),
        keyid=check_visible("keyid", parameters["keyid"], KEYID_LENGTH),
        alg=alg,
    )
