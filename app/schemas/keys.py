"""Keys of requesters and clients on the wire."""

from typing import Literal, Self

from pydantic import Field, model_validator

from app.schemas.base import KeyId, OpaqueId, Time, Wire


class NewKey(Wire):
    """The body of POST /v1/keys. `client` or `subject` narrows what the key may erase.

    A key of role `agent` is an Authorized Agent's of the Data Rights Protocol, by its agent-id.
    """

    keyid: KeyId
    algorithm: Literal["ed25519", "ecdsa-p256-sha256"]
    public_key: str = Field(max_length=4096)
    role: Literal["requester", "client", "agent"]
    client: OpaqueId | None = None
    subject: OpaqueId | None = None

    @model_validator(mode="after")
    def _agents_are_not_bound(self) -> Self:
        if self.role == "agent" and (
            self.algorithm != "ed25519" or self.client is not None or self.subject is not None
        ):
            raise ValueError("an agent's key is Ed25519, without client or subject")
        return self


class KeyConfirmation(Wire):
    """The body of POST /v1/keys/{keyid}/confirm: the key as its holder gave it to you."""

    public_key: str = Field(max_length=4096)


class KeyView(Wire):
    """A registered key; `revoked_at` is null while it is good.

    registered_by, confirmed_by: names of tokens. Requests of a bound key need a review until it
    is confirmed.
    """

    keyid: str
    algorithm: str
    public_key: str
    role: str
    client: str | None
    subject: str | None
    registered_by: str | None
    confirmed_by: str | None
    created_at: Time
    revoked_at: Time | None
