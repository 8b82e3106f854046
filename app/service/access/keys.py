"""Registration, confirmation and revocation of requesters' and clients' keys.

The log records who registered and who confirmed each key, in the transaction that stores it:
who registered a key counts as a submitter of the requests that it signs.
"""

import hashlib
import secrets
import uuid
from typing import NoReturn

from sqlalchemy import update
from sqlmodel import Session, col, select

from app.ledger.journal import record_key_event
from app.ledger.key_rows import believed, key_rows, loaded
from app.ledger.transaction import Transaction
from app.problems import (
    ConflictError,
    ForbiddenError,
    KeyUnloggedError,
    NotFoundError,
    UnauthorizedError,
)
from app.reconcile.approval import person
from app.reconcile.registrations import (
    CONFIRMED,
    REGISTERED,
    binding_digest,
    binding_of,
    registrations,
)
from app.schemas.base import Page
from app.schemas.keys import KeyView, NewKey
from app.service.context import Services
from lethe.signing.errors import KeyFormatError
from lethe.signing.keys import algorithm_of, fingerprint, load_public_key, public_pem
from models import BearerToken, RequesterKey

TAKEN = "this keyid is taken, by another key or a revoked one"
MISSING = (
    "no key has this id. If somebody removed or changed its row, `lethe log fsck` says so; "
    "should it be put back, it counts as revoked"
)
UNKNOWN = "the token is unknown or revoked: ask an operator for another"
SALT_BYTES = 32
DESTROYED = "\x00"  # in place of a name; no id may hold a control character


def register(services: Services, wanted: NewKey, by: str) -> tuple[KeyView, bool]:
    """Register a key; return it and whether it is new. Registering it again changes nothing.

    by: the name of the operator's token.

    Raises KeyFormatError: not a public key in PEM, or of another algorithm than claimed;
    ConflictError: the keyid belongs to another key or other rights, or was revoked.
    """
    key = load_public_key(wanted.public_key.encode())
    if algorithm_of(key) != wanted.algorithm:
        raise KeyFormatError(f"algorithm: must be that of the public key, {algorithm_of(key)}")
    row = RequesterKey(**wanted.model_dump(exclude={"public_key"}), public_key=public_pem(key))

    def effect(tx: Transaction) -> tuple[KeyView, bool]:
        rows = key_rows(tx.session)
        known = loaded(tx.session, RequesterKey, wanted.keyid)
        if known is not None and rows.is_believed(known):
            if _rights(known) != _rights(row) or known.revoked_at is not None:
                raise ConflictError(TAKEN)
            return show(known), False
        if rows.tag(row) in rows.revoked():
            raise ConflictError(TAKEN)
        # A row that was not written here is replaced by what the operator sends now.
        row.created_at, row.ref, row.registered_by = tx.now, str(uuid.uuid4()), by
        if binding_of(row) is not None:
            row.salt = secrets.token_hex(SALT_BYTES)
        rows.seal(row)
        _write(tx.session, row)
        said = {
            "keyid": row.keyid,
            "role": row.role,
            "public_key": fingerprint(key),
            "binding": binding_of(row),
            "bound": binding_digest(row),
            "by": by,
        }
        record_key_event(tx, row.ref, REGISTERED, said)
        return show(row), True

    return services.ledger.transact(effect)


def confirm(services: Services, keyid: str, public_key: str, by: str) -> KeyView:
    """Confirm the owner of a bound key: from now on its requests need no review.

    public_key: as its holder gave it to the person who confirms it. by: the name of the token
    of an operator or officer who did not register it.

    Raises:
        KeyFormatError: Not a public key in PEM.
        NotFoundError: No such key, or a revoked one.
        ConflictError: The registered key is another one, is not bound to a client or subject,
            or signs no requests.
        ForbiddenError: They registered it themselves.
        KeyUnloggedError: The log does not have its registration.
    """
    given = public_pem(load_public_key(public_key.encode()))

    def effect(tx: Transaction) -> KeyView:
        rows = key_rows(tx.session)
        key = loaded(tx.session, RequesterKey, keyid)
        if key is None or not rows.is_believed(key) or key.revoked_at is not None:
            raise NotFoundError("no key has this id, or it was revoked")
        if key.role != "requester" or binding_of(key) is None:
            raise ConflictError(
                "only a requester's key that is bound to a client or subject can be "
                "confirmed: this one needs no confirmation"
            )
        if key.public_key != given:
            raise ConflictError(
                "the key that is registered under this id is not the one that you sent: find "
                "out whose it is before anybody confirms it"
            )
        ref = str(key.ref)
        found = registrations(services.ledger, tx.session, [ref]).get(ref)
        if found is None or (found.keyid, found.binding) != (keyid, binding_of(key)):
            raise KeyUnloggedError(
                "the log does not have the registration of this key: run `lethe log fsck`, "
                "revoke the key and register another"
            )
        if person(by) == person(found.by):
            raise ForbiddenError(
                "nobody confirms a key that they registered: have another operator or an "
                "officer confirm it, with a token of another name"
            )
        if key.confirmed_by is None:
            key.confirmed_by = by
            rows.seal(key)
            tx.session.flush()
            record_key_event(tx, ref, CONFIRMED, {"keyid": keyid, "by": by})
        return show(key)

    return services.ledger.transact(effect)


def revoke(services: Services, keyid: str) -> KeyView:
    """Revoke a key from now on. Its earlier signatures stay valid.

    Raises NotFoundError if there is none; if restored to the database, it counts as revoked.
    """

    def effect(tx: Transaction) -> KeyView:
        rows = key_rows(tx.session)
        key = loaded(tx.session, RequesterKey, keyid)
        if key is None or not rows.is_written_here(key):
            # Otherwise a removed or changed row could be restored after this.
            rows.ban(RequesterKey, keyid)
            raise NotFoundError(MISSING)
        rows.revoke(key)  # first: after a crash, the revocation can be repeated
        key.revoked_at = key.revoked_at or tx.now
        rows.seal(key)
        tx.session.flush()
        return show(key)

    return services.ledger.transact(effect, checkpoint=False)


def page(session: Session, after: str | None, limit: int) -> Page[KeyView]:
    """Return keys in the order of their ids, without rows that were not written here."""
    query = select(RequesterKey.keyid).order_by(RequesterKey.keyid).limit(limit + 1)
    if after is not None:
        query = query.where(col(RequesterKey.keyid) > after)
    ids = list(session.exec(query))
    rows = [believed(session, RequesterKey, keyid) for keyid in ids[:limit]]
    more = ids[limit - 1] if len(ids) > limit else None
    return Page(items=[show(row) for row in rows if row is not None], next=more)


def show(key: RequesterKey) -> KeyView:
    """Return a key as the API shows it."""
    fields = key.model_dump(exclude={"mac", "ref", "salt"})
    for name in ("client", "subject"):
        if fields[name] == DESTROYED:
            fields[name] = "(destroyed)"
    return KeyView.model_validate(fields)


def _write(session: Session, row: RequesterKey) -> None:
    """Insert a row, or overwrite one, which may be unreadable."""
    written = session.connection().execute(
        update(RequesterKey)
        .where(col(RequesterKey.keyid) == row.keyid)
        .values(row.model_dump())
    )
    if written.rowcount == 0:
        session.add(row)
        session.flush()


def _rights(key: RequesterKey) -> tuple[str | None, ...]:
    return (key.algorithm, key.public_key, key.role, key.client, key.subject)


def is_known_token(session: Session, header: str) -> bool:
    """Return whether an Authorization header has a good token, whatever its scope."""
    token = _token(session, header)
    return token is not None and token.revoked_at is None


def authorise(session: Session, header: str | None, scopes: tuple[str, ...]) -> BearerToken:
    """Return the token of an Authorization header if its scope is among `scopes`.

    Raises UnauthorizedError: no token, or one that is unknown or revoked; ForbiddenError: the
    token's scope does not cover the call.
    """
    token = authenticate(session, header)
    require_scope(token, scopes)
    return token


def authenticate(session: Session, header: str | None) -> BearerToken:
    """Return the token of an Authorization header, whatever its scope.

    Raises UnauthorizedError: no token, or one that is unknown or revoked.
    """
    token = _token(session, header) if header and _bearer(header) else None
    if token is None or token.revoked_at is not None:
        refuse_unknown(header)
    return token


def require_scope(token: BearerToken, scopes: tuple[str, ...]) -> None:
    """Raise ForbiddenError unless the scope of a token is among `scopes`."""
    if token.scope not in scopes:
        raise ForbiddenError(f"this call needs a token of scope {' or '.join(scopes)}")


def refuse_unknown(header: str | None) -> NoReturn:
    """Raise UnauthorizedError for an Authorization header without a good token."""
    if not _bearer(header or ""):
        raise UnauthorizedError(
            "send Authorization: Bearer <token>; `lethe token new` makes one"
        )
    raise UnauthorizedError(UNKNOWN)


def require_active(digest: str, session: Session) -> None:
    """Check that the token of a digest was not revoked. Raises UnauthorizedError if it was."""
    token = believed(session, BearerToken, digest)
    if token is None or token.revoked_at is not None:
        raise UnauthorizedError(UNKNOWN)


def _bearer(header: str) -> str:
    kind, _, value = header.partition(" ")
    return value.strip() if kind.lower() == "bearer" else ""


def _token(session: Session, header: str) -> BearerToken | None:
    # The lookup is by the digest, so no comparison leaks the secret through its timing.
    digest = hashlib.sha256(_bearer(header).encode()).hexdigest()
    return believed(session, BearerToken, digest)
