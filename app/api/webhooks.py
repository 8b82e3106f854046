"""/v1/webhooks: endpoints of notices and their deliveries, for operators."""

from typing import Annotated

from fastapi import APIRouter

from app.api.http.deps import After, Limit, Operator, ServicesDep
from app.api.http.strict import StrictRoute
from app.notices import endpoints, history
from app.notices.signatures import shown
from app.schemas.base import Page
from app.schemas.webhooks import (
    DeliveryView,
    NewWebhook,
    Replay,
    Replayed,
    SecretView,
    WebhookMade,
    WebhookView,
)
from models import BearerToken, Delivery, Webhook

router = APIRouter(
    prefix="/v1/webhooks", tags=["webhooks"], dependencies=[Operator], route_class=StrictRoute
)


@router.post("", status_code=201, operation_id="addWebhook")
def add(
    wanted: NewWebhook, services: ServicesDep, token: Annotated[BearerToken, Operator]
) -> WebhookMade:
    """Add an endpoint. The answer has its secret, which is not shown again."""
    row = endpoints.add(
        services, wanted.url, wanted.events, wanted.model, wanted.signature, token.name
    )
    return _made(row)


@router.get("", operation_id="listWebhooks")
def list_webhooks(services: ServicesDep) -> Page[WebhookView]:
    """List all endpoints, oldest first."""
    with services.reading() as session:
        rows = endpoints.current(session)
    return Page(items=[_view(row) for row in rows], next=None)


@router.get("/{webhook}", operation_id="getWebhook")
def get(webhook: str, services: ServicesDep) -> WebhookView:
    """Show an endpoint."""
    with services.reading() as session:
        return _view(endpoints.find(session, webhook))


@router.get("/{webhook}/deliveries", operation_id="listDeliveries")
def deliveries(
    webhook: str, services: ServicesDep, after: After = None, limit: Limit = 100
) -> Page[DeliveryView]:
    """List what was, or will be, delivered to an endpoint, newest first. Kept for 30 days."""
    rows, more = history.page(services, webhook, after, limit)
    return Page(items=[delivery_view(row) for row in rows], next=more)


@router.post("/{webhook}/replay", operation_id="replayWebhook")
def replay(webhook: str, wanted: Replay, services: ServicesDep) -> Replayed:
    """Send one delivery again, or all that failed, with the ids that they had."""
    return Replayed(waiting=history.replay(services, webhook, wanted.delivery))


@router.post("/{webhook}/test", operation_id="testWebhook")
def test(webhook: str, services: ServicesDep) -> DeliveryView:
    """Send a notice of the type `webhook.test` now, and show the answer."""
    return delivery_view(history.send_test(services, webhook))


@router.post("/{webhook}/rotate", operation_id="rotateWebhook")
def rotate(webhook: str, services: ServicesDep) -> WebhookMade:
    """Make a new secret. For 24 hours notices have signatures of both secrets."""
    return _made(endpoints.rotate(services, webhook))


@router.post("/{webhook}/disable", operation_id="disableWebhook")
def disable(webhook: str, services: ServicesDep) -> WebhookView:
    """Send nothing more to an endpoint; deliveries that wait for it fail."""
    return _view(endpoints.disable(services, webhook))


@router.post("/{webhook}/enable", operation_id="enableWebhook")
def enable(webhook: str, services: ServicesDep) -> WebhookView:
    """Send to an endpoint again, from the next event on."""
    return _view(endpoints.enable(services, webhook))


@router.delete("/{webhook}", operation_id="removeWebhook")
def remove(webhook: str, services: ServicesDep) -> WebhookView:
    """Remove an endpoint and its secrets; returns it as it was."""
    return _view(endpoints.remove(services, webhook))


def _view(row: Webhook) -> WebhookView:
    fields = row.model_dump(exclude={"row", "generation", "secrets", "mac"})
    secrets = [
        SecretView(
            signature=one["kind"],
            public_key=shown(one) if one["kind"] == "v1a" else None,
            until=one["until"],
        )
        for one in row.secrets
    ]
    return WebhookView(**fields, secrets=secrets)


def _made(row: Webhook) -> WebhookMade:
    return WebhookMade(**dict(_view(row)), secret=shown(row.secrets[0]))


def delivery_view(row: Delivery) -> DeliveryView:
    """Return a delivery as operators see it."""
    own = {"receiver", "lane", "lease_until", "lease_token", "next_at"}
    fields = row.model_dump(exclude=own)
    waits = row.next_at if row.state == "waiting" else None
    return DeliveryView(**fields, next_at=waits)
