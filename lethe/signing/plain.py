"""A fast parser for signatures in exactly the spelling of Lethe's own clients.

The library parses both fields twice more and resolves components that are not covered, which
costs a millisecond per request. This parser accepts only input with a single possible reading.
Everything else, and every signature that does not verify, is left to the general parser, which
alone refuses and gives the reason.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass

from lethe.signing.fields import KEYID_LENGTH, NONCE_LENGTH, TAG, SignatureFields

# Visible ASCII without the two characters that a structured string escapes (RFC 9651 3.3.3).
_VISIBLE = r"[!#-\[\]-~]"
_INPUT = re.compile(
    r"(?P<label>[a-z][a-z0-9]{0,31})=(?P<parameters>"
    r'\((?P<covered>"@method" "@target-uri"'
    r'(?: "content-type" "content-digest")?(?: "idempotency-key")?)\)'
    r";created=(?P<created>[1-9][0-9]{0,14})"
    rf';keyid="(?P<keyid>{_VISIBLE}{{{KEYID_LENGTH[0]},{KEYID_LENGTH[1]}}})"'
    r';alg="(?P<alg>[a-z0-9-]{1,32})"'
    r";expires=(?P<expires>[1-9][0-9]{0,14})"
    rf';nonce="(?P<nonce>{_VISIBLE}{{{NONCE_LENGTH[0]},{NONCE_LENGTH[1]}}})"'
    rf';tag="{TAG}")'
)
_SIGNATURE = re.compile(r"(?P<label>[a-z][a-z0-9]{0,31})=:(?P<base64>[A-Za-z0-9+/]{86}==):")
_METHOD = re.compile(r"[A-Z]{1,16}")
# No user, query, fragment, escape or empty path: normalising those needs rules.
_TARGET = re.compile(
    r"https?://[a-z0-9]+(?:[.-][a-z0-9]+)*(?::[1-9][0-9]{0,4})?/[A-Za-z0-9/_.~-]*"
)
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")


@dataclass(frozen=True, slots=True)
class PlainSignature:
    """A parsed signature, with its parameters in the spelling that was signed."""

    fields: SignatureFields
    signature: bytes
    covered: tuple[str, ...]
    parameters: str

    def base(
        self, method: str, target_uri: str, lines: Mapping[str, list[str]]
    ) -> bytes | None:
        """Return the signature base (RFC 9421 section 2.5), None if a value is not plain."""
        if not (_METHOD.fullmatch(method) and _TARGET.fullmatch(target_uri)):
            return None
        parts = [f'"@method": {method}\n"@target-uri": {target_uri}']
        for name in self.covered[2:]:
            values = lines.get(name, ())
            if len(values) != 1 or not _VALUE.fullmatch(values[0]):
                return None
            parts.append(f'"{name}": {values[0]}')
        parts.append(f'"@signature-params": {self.parameters}')
        return "\n".join(parts).encode()


def parse_plain(lines: Mapping[str, list[str]]) -> PlainSignature | None:
    """Parse the request's only signature if it is spelled as `sign_request` spells it.

    lines: values by the lowercase names of their fields. None does not mean that they are
    invalid, only that `lethe.signing.fields.parse_fields` must parse them.
    """
    inputs, signatures = lines.get("signature-input", ()), lines.get("signature", ())
    if len(inputs) != 1 or len(signatures) != 1:
        return None
    parsed = _INPUT.fullmatch(inputs[0])
    signed = _SIGNATURE.fullmatch(signatures[0])
    if parsed is None or signed is None or parsed["label"] != signed["label"]:
        return None
    signature = base64.b64decode(signed["base64"])
    if base64.b64encode(signature).decode() != signed["base64"]:
        return None
    covered = tuple(name.strip('"') for name in parsed["covered"].split(" "))
    fields = SignatureFields(
        bare=frozenset(covered),
        wrapped=frozenset(),
        created=int(parsed["created"]),
        expires=int(parsed["expires"]),
        nonce=parsed["nonce"],
        keyid=parsed["keyid"],
        alg=parsed["alg"],
    )
    return PlainSignature(fields, signature, covered, parsed["parameters"])
