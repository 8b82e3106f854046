"""/v1/callbacks: their signing key and, for operators, their deliveries."""

from fastapi import APIRouter

from app.api.http.deps import After, Limit, Operator, ServicesDep
from app.api.http.strict import StrictRoute
from app.api.webhooks import delivery_view
from app.notices import history
from app.notices.callbacks import key, rows
from app.schemas.base import Page
from app.schemas.webhooks import CallbackKey, CallbackView, DeliveryView, Replay, Replayed
from models import Callback

router = APIRouter(prefix="/v1/callbacks", tags=["callbacks"], route_class=StrictRoute)


@router.get("/key", operation_id="getCallbackKey")
def get_key(services: ServicesDep) -> CallbackKey:
    """Show the public key with which receivers verify callbacks."""
    return CallbackKey(key=key.public_key(rows.entry_key(services)))


@router.get("", operation_id="listCallbacks", dependencies=[Operator])
def list_callbacks(
    services: ServicesDep, ref: str | None = None, after: After = None, limit: Limit = 100
) -> Page[CallbackView]:
    """List callbacks whose address is stored, oldest first; ref: of this request only."""
    found, more = rows.page(services, ref, after, limit)
    return Page(items=[_view(row) for row in found], next=more)


@router.get(
    "/{callback}/deliveries", operation_id="listCallbackDeliveries", dependencies=[Operator]
)
def deliveries(
    callback: str, services: ServicesDep, after: After = None, limit: Limit = 100
) -> Page[DeliveryView]:
    """List what was, or will be, delivered to a callback, newest first."""
    found, more = history.page(services, callback, after, limit)
    return Page(items=[delivery_view(row) for row in found], next=more)


@router.post("/{callback}/replay", operation_id="replayCallback", dependencies=[Operator])
def replay(callback: str, wanted: Replay, services: ServicesDep) -> Replayed:
    """Send one delivery again, or all that failed; one that was overtaken is not sent."""
    return Replayed(waiting=history.replay(services, callback, wanted.delivery))


@router.delete("/{callback}", operation_id="removeCallback", dependencies=[Operator])
def remove(callback: str, services: ServicesDep) -> CallbackView:
    """Destroy the address of a callback: nothing more is sent to it. Returns it as it was."""
    return _view(rows.remove(services, callback))


def _view(row: Callback) -> CallbackView:
    return CallbackView.model_validate(row.model_dump(exclude={"ref", "url"}))
