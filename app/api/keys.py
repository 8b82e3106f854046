"""/v1/keys: requesters' and clients' public keys, for operators."""

from fastapi import APIRouter, Response

from app.api.http.deps import After, Limit, Operator, ServicesDep
from app.api.http.strict import StrictRoute
from app.schemas.base import Page
from app.schemas.keys import KeyView, NewKey
from app.service.access import keys

router = APIRouter(
    prefix="/v1/keys", tags=["keys"], dependencies=[Operator], route_class=StrictRoute
)


@router.post("", status_code=201, operation_id="registerKey")
def register(wanted: NewKey, services: ServicesDep, response: Response) -> KeyView:
    """Register a public key. Sending the same key again answers 200."""
    shown, created = keys.register(services, wanted)
    response.status_code = 201 if created else 200
    return shown


@router.get("", operation_id="listKeys")
def list_keys(services: ServicesDep, after: After = None, limit: Limit = 100) -> Page[KeyView]:
    """List keys by id, revoked ones too."""
    with services.reading() as session:
        return keys.page(session, after, limit)


@router.delete("/{keyid}", operation_id="revokeKey")
def revoke(keyid: str, services: ServicesDep) -> KeyView:
    """Revoke a key from now on; what it signed before stays valid."""
    return keys.revoke(services, keyid)
