"""Registration and revocation of requesters' and clients' keys."""

from sqlmodel import Session, col, select

from app.ledger.sequencer import Transaction
from app.schemas.base import Page
from app.schemas.keys import KeyView, NewKey
from app.service.context import Services
from app.service.problems import ConflictError, NotFoundError
from app.service.signatures import unknown_key
from app.signing.errors import KeyFormatError
from app.signing.keys import (
    Algorithm,
    PublicKey,
    algorithm_of,
    load_public_key,
    public_pem,
)
from models import RequesterKey


def register(services: Services, wanted: NewKey) -> tuple[KeyView, bool]:
    """Register a key; returns it and whether it is new. The same key again is the same key.

    Raises:
        KeyFormatError: Not a public key in PEM, or of another algorithm than claimed.
        ConflictError: The keyid belongs to another key or other rights, or was revoked.
    """
    key = load_public_key(wanted.public_key.encode())
    if algorithm_of(key) != wanted.algorithm:
        raise KeyFormatError("the public key is of another algorithm than the one named")
    row = RequesterKey(**wanted.model_dump(exclude={"public_key"}), public_key=public_pem(key))

    def effect(tx: Transaction) -> tuple[KeyView, bool]:
        known = tx.session.get(RequesterKey, wanted.keyid)
        if known is None:
            row.created_at = tx.now
            tx.session.add(row)
            tx.session.flush()
            return show(row), True
        same = _rights(known) == _rights(row) and known.revoked_at is None
        if not same:
            raise ConflictError("this keyid is taken, by another key or a revoked one")
        return show(known), False

    return services.ledger.transact(effect, checkpoint=False)


def revoke(services: Services, keyid: str) -> KeyView:
    """Revoke a key from now on. What it signed before stays valid.

    Raises:
        NotFoundError: No such key.
    """

    def effect(tx: Transaction) -> KeyView:
        key = tx.session.get(RequesterKey, keyid)
        if key is None:
            raise NotFoundError("no key has this id")
        key.revoked_at = key.revoked_at or tx.now
        tx.session.flush()
        return show(key)

    return services.ledger.transact(effect, checkpoint=False)


def resolve(session: Session, keyid: str) -> tuple[PublicKey, Algorithm]:
    """Return a good key by its id.

    Raises:
        KeyUnknownError: It was never registered, or it was revoked.
    """
    key = session.get(RequesterKey, keyid)
    if key is None or key.revoked_at is not None:
        raise unknown_key()
    public = load_public_key(key.public_key.encode())
    return public, algorithm_of(public)


def page(session: Session, after: str | None, limit: int) -> Page[KeyView]:
    """Return keys in the order of their ids."""
    query = select(RequesterKey).order_by(RequesterKey.keyid).limit(limit + 1)
    if after is not None:
        query = query.where(col(RequesterKey.keyid) > after)
    rows = list(session.exec(query))
    more = rows[limit - 1].keyid if len(rows) > limit else None
    return Page(items=[show(row) for row in rows[:limit]], next=more)


def show(key: RequesterKey) -> KeyView:
    """Return a key as it goes over the wire."""
    return KeyView.model_validate(key.model_dump())


def _rights(key: RequesterKey) -> tuple[str | None, ...]:
    return (key.algorithm, key.public_key, key.role, key.client, key.subject)
