"""RFC 9421 by hand: it builds the signature base from strings and shares no code with app.

It signs whatever it is told to, also what no honest client would sign.
"""

import base64
from dataclasses import dataclass, field
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    derive_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

NOW = 1_800_000_000
NONCE = "Zm9yZ2V0IG1lIG5vdA"
URI = "https://ledger.example/v1/requests"
BODY = b'{"model":"digits","scope":{"level":"sample","records":["r7"]}}'

ED25519 = Ed25519PrivateKey.from_private_bytes(sha256(b"lethe vector ed25519").digest())
STRANGER = Ed25519PrivateKey.from_private_bytes(sha256(b"lethe vector stranger").digest())
P256 = derive_private_key(int.from_bytes(sha256(b"lethe vector p256").digest()), SECP256R1())
Key = Ed25519PrivateKey | EllipticCurvePrivateKey


def b64(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode()


def sha256_field(body: bytes) -> str:
    return f"sha-256=:{b64(sha256(body).digest())}:"


@dataclass
class Request:
    """A request on the wire; a field name may occur twice in headers."""

    method: str
    uri: str
    headers: list[tuple[str, str]]
    body: bytes

    def replace(self, name: str, value: str) -> None:
        self.headers = [(n, value if n == name else v) for n, v in self.headers]

    def drop(self, name: str) -> None:
        self.headers = [(n, v) for n, v in self.headers if n != name]

    def get(self, name: str) -> str:
        return ", ".join(v for n, v in self.headers if n == name)


@dataclass
class Draft:
    """What to sign: `parameters` are written as given, in that order."""

    method: str = "POST"
    uri: str = URI
    headers: dict[str, str] = field(
        default_factory=lambda: {
            "content-type": "application/json",
            "content-digest": sha256_field(BODY),
        }
    )
    body: bytes = BODY
    covered: list[str] = field(
        default_factory=lambda: [
            '"@method"',
            '"@target-uri"',
            '"content-type"',
            '"content-digest"',
        ]
    )
    parameters: dict[str, str] = field(
        default_factory=lambda: {
            "created": str(NOW - 10),
            "expires": str(NOW + 290),
            "nonce": f'"{NONCE}"',
            "keyid": '"requester-1"',
            "tag": '"lethe-erasure"',
        }
    )
    values: dict[str, str] = field(default_factory=dict)  # of identifiers unknown here
    label: str = "sig1"
    key: Key = ED25519

    def parameter_text(self) -> str:
        return "".join(f";{name}={value}" for name, value in self.parameters.items())

    def value_of(self, identifier: str) -> str:
        if identifier in self.values:
            return self.values[identifier]
        name = identifier.strip('"')
        if name == "@method":
            return self.method
        if name == "@target-uri":
            return self.uri
        return self.headers[name]


def raw_signature(key: Key, message: bytes) -> bytes:
    if isinstance(key, Ed25519PrivateKey):
        return key.sign(message)
    # Deterministic (RFC 6979), so that recorded vectors can be recorded again.
    der = key.sign(message, ECDSA(SHA256(), deterministic_signing=True))
    r, s = decode_dss_signature(der)
    return r.to_bytes(32) + s.to_bytes(32)  # RFC 9421 section 3.3.4


def signature_base(draft: Draft, spelling: str) -> bytes:
    lines = [f"{identifier}: {draft.value_of(identifier)}" for identifier in draft.covered]
    return "\n".join([*lines, f'"@signature-params": {spelling}']).encode()


def sign(draft: Draft, spelling: str | None = None) -> Request:
    """Sign the draft. `spelling` replaces the canonical covered list and parameters."""
    canonical = f"({' '.join(draft.covered)}){draft.parameter_text()}"
    text = canonical if spelling is None else spelling
    signature = raw_signature(draft.key, signature_base(draft, text))
    headers = [
        *draft.headers.items(),
        ("signature-input", f"{draft.label}={text}"),
        ("signature", f"{draft.label}=:{b64(signature)}:"),
    ]
    return Request(draft.method, draft.uri, headers, draft.body)


def bare_draft(method: str = "DELETE") -> Draft:
    """A request without a body."""
    return Draft(
        method=method,
        uri=f"{URI}/0190",
        headers={},
        body=b"",
        covered=['"@method"', '"@target-uri"'],
    )
