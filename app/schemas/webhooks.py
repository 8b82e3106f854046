"""Webhooks and callbacks on the wire: endpoints, addresses and their deliveries."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from app.schemas.base import ModelRef, Time, Wire
from lethe.catalogue import NOTICES

DeliveryId = Annotated[str, StringConstraints(pattern=r"^msg_[0-9a-f]{32}$")]


class NewWebhook(Wire):
    """The body of POST /v1/webhooks. Without `model`, notices of all models are sent."""

    url: str = Field(min_length=1, max_length=2000)
    events: list[str] = Field(min_length=1, max_length=len(NOTICES))
    model: ModelRef | None = None
    signature: Literal["v1", "v1a"] = "v1"

    @field_validator("events")
    @classmethod
    def _known(cls, value: list[str]) -> list[str]:
        if any(one not in NOTICES for one in value):
            raise ValueError(f"events are some of {', '.join(NOTICES)}")
        return value


class SecretView(Wire):
    """A secret in use; `public_key` only of v1a. `until`: when it expires, or null."""

    signature: str
    public_key: str | None
    until: Time | None


class WebhookView(Wire):
    """An endpoint; `disabled` says why nothing is sent to it, or is null."""

    id: str
    url: str
    events: list[str]
    model: str | None
    secrets: list[SecretView]
    created_by: str
    created_at: Time
    disabled: str | None


class WebhookMade(WebhookView):
    """An endpoint with its new secret, which is not shown again: `whsec_…`, or `whpk_…`."""

    secret: str


class DeliveryView(Wire):
    """A notice to an endpoint. `about`: the index of a log entry, or what the alarm names.

    answer: the status of the last attempt, or why there was no answer.
    """

    id: str
    event: str
    about: str
    state: Literal["waiting", "delivered", "failed", "dropped"]
    attempts: int
    created_at: Time
    next_at: Time | None
    answer: str | None
    ended_at: Time | None


class Replay(Wire):
    """The body of POST /v1/webhooks/{id}/replay: one delivery, or null for all that failed."""

    delivery: DeliveryId | None = None


class Replayed(Wire):
    """How many deliveries wait to be sent again."""

    waiting: int


class CallbackKey(Wire):
    """The public key that callbacks are verified with (Standard Webhooks, v1a): `whpk_…`."""

    key: str


class CallbackView(Wire):
    """A callback whose address is stored.

    owner: the keyid or agent that requested it. request: the reference of its request, or the
    id that the agent gave it. delivered_state: the state that was delivered last. ended: the
    request has ended, so the address is destroyed once nothing waits to be delivered.
    """

    id: str
    kind: Literal["request", "OpenDSR", "DRP"]
    owner: str
    request: str
    created_at: Time
    delivered_state: str | None
    ended: bool
