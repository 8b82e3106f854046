"""The envelope of the Data Rights Protocol: base64 of an Ed25519 signature and JSON.

The checks are in the order of section 3.07: base64, signature, agent-id, business-id,
issued-at, expires-at. The JSON is parsed only after its signature verified.
"""

import binascii
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from app.problems import DrpAgentError, DrpError
from lethe import canonical

SIGNATURE = 64  # bytes
CLAIMS = frozenset({"agent-id", "business-id", "issued-at", "expires-at"})
LONGEST = timedelta(minutes=10)  # "no more than 10 minute time windows" (section 2.01)


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message whose signature verified. digest: hex SHA-256 of signature and JSON."""

    said: Mapping[str, Any]
    digest: str


def open_envelope(text: bytes, key: Ed25519PublicKey) -> Envelope:
    """Return the message of an envelope that `key` signed.

    Raises DrpError: not base64, or the signed text is no JSON object or has a name twice;
    DrpAgentError: signed by another key, or not at all.
    """
    try:
        data = b64decode(text.strip(), validate=True)
    except binascii.Error:
        raise DrpError("the body is not base64 of a signature and a message") from None
    try:
        key.verify(data[:SIGNATURE], data[SIGNATURE:])
    except InvalidSignature:
        raise DrpAgentError("the message is not signed with the agent's key") from None
    try:
        said = canonical.loads(data[SIGNATURE:])
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise DrpError("the signed message is not a JSON object, or names a member twice")
    return Envelope(said, sha256(data).hexdigest())


def check_claims(said: Mapping[str, Any], agent: str, business: str, now: datetime) -> datetime:
    """Return a message's expiry, if it is this agent's, for this business and in time.

    Raises DrpAgentError: from another agent, or for another business; DrpError: not issued yet,
    expired, or for longer than LONGEST.
    """
    if said.get("agent-id") != agent:
        raise DrpAgentError("agent-id is not the agent of the token or address")
    if said.get("business-id") != business:
        raise DrpAgentError("business-id is not this business")
    issued, expires = _time(said, "issued-at"), _time(said, "expires-at")
    if not issued < now:
        raise DrpError("issued-at is in the future: compare the clocks")
    if not now < expires:
        raise DrpError("expires-at is over: sign the message again")
    if expires - issued > LONGEST:
        raise DrpError("expires-at is more than 10 minutes after issued-at")
    return expires


def check_pairing(said: Mapping[str, Any]) -> None:
    """Check that a message with valid claims is for pairing, and nothing else.

    Raises DrpError if it has other members, so it was signed for something else.
    """
    if not said.keys() <= {*CLAIMS, "drp.version"}:
        raise DrpError(
            "a message that pairs must have only its claims and drp.version: leave the rest out"
        )


def check_withdrawal(
    said: Mapping[str, Any], agent: str, business: str, now: datetime
) -> datetime | None:
    """Return the expiry of a message that withdraws, None if it has no claims.

    In section 2.04 only a reason is signed. A message with one claim must have them all.
    Raises DrpError if it exercises a right, and what `check_claims` raises.
    """
    if "exercise" in said:
        raise DrpError("a message that withdraws must not have exercise: leave it out")
    return check_claims(said, agent, business, now) if said.keys() & CLAIMS else None


def _time(said: Mapping[str, Any], name: str) -> datetime:
    try:
        at = datetime.fromisoformat(said[name])
    except (KeyError, TypeError, ValueError):
        at = None
    if at is None or at.tzinfo is None:
        raise DrpError(f"{name} is not an ISO 8601 time with its zone")
    return at
