"""Who signed a call: its nonce spent once, its key still good and of the right role.

A nonce is spent as soon as the signature verifies and before the body is read, whatever
becomes of the call: a call that was refused cannot be sent again by whoever overheard it.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Literal

from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col

from app.ledger.key_rows import believed
from app.ledger.sequencer import Ledger
from lethe.signing.errors import (
    KeyNotEntitledError,
    KeyUnknownError,
    SignatureReplayedError,
)
from lethe.signing.http import MAX_WINDOW, SignedBy
from models import RequesterKey, UsedNonce
from models.session import unsynced

Role = Literal["requester", "client"]
MAX_BATCH = 256  # nonces in one transaction
# Past expiry, which is by the API's clock, while nonces are forgotten by the database's: these
# may differ by the longest life of a signature, and a minute is left for what is under way.
MARGIN = MAX_WINDOW + timedelta(minutes=1)
_Item = tuple[SignedBy, "Future[bool]"]


class NonceBook:
    """Spends nonces, those of calls that arrive together in one transaction.

    The transaction is not synced to the disk by itself. It is as durable as the next one that
    is, so whatever a call changed has its nonce before it; a power cut can only forget nonces
    of calls that changed nothing, within the last moments. A killed process forgets none.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._engine = unsynced(ledger.engine)
        self._waiting: list[_Item] = []
        self._list = threading.Lock()
        self._turn = threading.Lock()

    def spend(self, signed: SignedBy) -> None:
        """Spend the nonce of a signature that verified.

        Raises:
            SignatureReplayedError: (keyid, nonce) was spent before.
        """
        future: Future[bool] = Future()
        with self._list:
            self._waiting.append((signed, future))
        # Who waits here for its turn mostly finds that another wrote its nonce as well.
        while not future.done():
            with self._turn:
                with self._list:
                    batch = self._waiting[:MAX_BATCH]
                    del self._waiting[:MAX_BATCH]
                if batch:
                    self._write(batch)
        if not future.result():
            raise SignatureReplayedError(
                "this nonce was used before: sign again with a new one"
            )

    def _write(self, batch: Sequence[_Item]) -> None:
        try:
            fresh = self._ledger.beside(lambda: self._insert(batch))
        except BaseException as error:  # raised again in each caller
            for _, future in batch:
                future.set_exception(error)
            return
        for signed, future in batch:
            pair = (signed.keyid, signed.nonce)
            future.set_result(pair in fresh)
            fresh.discard(pair)  # twice in one batch is once too often

    def _insert(self, batch: Sequence[_Item]) -> set[tuple[str, str]]:
        """Return the pairs of (keyid, nonce) that were not there; they are now."""
        expiries = {
            (signed.keyid, signed.nonce): signed.expires + MARGIN for signed, _ in batch
        }
        # In one order, or processes that insert the same ones could wait for one another.
        rows = [
            {"keyid": keyid, "nonce": nonce, "expires_at": expires}
            for (keyid, nonce), expires in sorted(expiries.items())
        ]
        dialect = sqlite if self._engine.dialect.name == "sqlite" else postgresql
        statement = (
            dialect.insert(UsedNonce)
            .values(rows)
            .on_conflict_do_nothing()
            .returning(col(UsedNonce.keyid), col(UsedNonce.nonce))
        )
        with self._engine.begin() as connection:
            return {(keyid, nonce) for keyid, nonce in connection.execute(statement)}


def current_key(session: Session, signed: SignedBy, role: Role) -> RequesterKey:
    """Return the key of a signature that verified, if it still counts and has the role.

    Raises:
        KeyUnknownError: The key was deleted, changed or revoked since the signature was
            checked.
        KeyNotEntitledError: Keys of its role do not sign such calls.
    """
    key = believed(session, RequesterKey, signed.keyid)
    if key is None or key.revoked_at is not None:
        raise unknown_key()
    if key.role != role:
        raise KeyNotEntitledError(f"this call is signed with a key of role {role}")
    return key


def unknown_key() -> KeyUnknownError:
    """Return the one answer for keys that were never registered and those that were revoked.

    Another answer would tell anybody which ids were ever given out.
    """
    return KeyUnknownError(
        "no key is registered under this keyid, or it was revoked: sign with a current one"
    )
