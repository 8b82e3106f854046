"""/v1/keys: requesters' and clients' public keys, for operators; officers confirm them."""

from typing import Annotated

from fastapi import APIRouter, Response

from app.api.http.deps import After, Deciding, Limit, Operator, ServicesDep
from app.api.http.strict import StrictRoute
from app.schemas.base import Page
from app.schemas.keys import KeyConfirmation, KeyView, NewKey
from app.service.access import keys
from models import BearerToken

router = APIRouter(
    prefix="/v1/keys", tags=["keys"], dependencies=[Deciding], route_class=StrictRoute
)


@router.post("", status_code=201, operation_id="registerKey")
def register(
    wanted: NewKey,
    services: ServicesDep,
    token: Annotated[BearerToken, Operator],
    response: Response,
) -> KeyView:
    """Register a public key; the log names the token. The same key again answers 200."""
    shown, created = keys.register(services, wanted, token.name)
    response.status_code = 201 if created else 200
    return shown


@router.get("", operation_id="listKeys")
def list_keys(services: ServicesDep, after: After = None, limit: Limit = 100) -> Page[KeyView]:
    """List keys by id, revoked ones too."""
    with services.reading() as session:
        return keys.page(session, after, limit)


@router.post("/{keyid}/confirm", operation_id="confirmKey")
def confirm(
    keyid: str,
    given: KeyConfirmation,
    services: ServicesDep,
    token: Annotated[BearerToken, Deciding],
) -> KeyView:
    """Confirm a bound key's owner, as a second person: its requests then need no review."""
    return keys.confirm(services, keyid, given.public_key, token.name)


@router.delete("/{keyid}", operation_id="revokeKey", dependencies=[Operator])
def revoke(keyid: str, services: ServicesDep) -> KeyView:
    """Revoke a key from now on; its earlier signatures stay valid."""
    return keys.revoke(services, keyid)
