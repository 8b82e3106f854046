"""Callbacks on the wire. Their addresses are never shown: they are the requesters'."""

from typing import Literal

from app.schemas.base import Time, Wire


class CallbackKey(Wire):
    """The public key that callbacks are verified with (Standard Webhooks, v1a): `whpk_…`."""

    key: str


class CallbackView(Wire):
    """A callback whose address is stored.

    owner: the keyid or agent that requested it. request: the reference of its request, or the
    id that the agent gave it. told: the state that was delivered last. ended: the request has
    ended, so the address is destroyed once nothing waits to be delivered.
    """

    id: str
    kind: Literal["request", "OpenDSR", "DRP"]
    owner: str
    request: str
    created_at: Time
    told: str | None
    ended: bool
