"""Keys of requesters and clients on the wire."""

from typing import Literal

from pydantic import Field

from app.schemas.base import KeyId, OpaqueId, Time, Wire


class NewKey(Wire):
    """The body of POST /v1/keys. `client` or `subject` narrows what the key may erase."""

    keyid: KeyId
    algorithm: Literal["ed25519", "ecdsa-p256-sha256"]
    public_key: str = Field(max_length=4096)
    role: Literal["requester", "client"]
    client: OpaqueId | None = None
    subject: OpaqueId | None = None


class KeyView(Wire):
    """A registered key; `revoked_at` is null while it is good."""

    keyid: str
    algorithm: str
    public_key: str
    role: str
    client: str | None
    subject: str | None
    created_at: Time
    revoked_at: Time | None
