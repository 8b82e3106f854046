"""Who signed a call: its nonce spent once, its key still good and of the right role.

A nonce is spent as soon as the signature verifies and before the body is read, whatever
becomes of the call: a call that was refused cannot be sent again by whoever overheard it.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from sqlalchemy import Connection, Dialect
from sqlmodel import Session

from app.ledger.key_rows import believed, key_rows
from app.ledger.sequencer import Ledger
from lethe.signing.errors import (
    KeyNotEntitledError,
    KeyUnknownError,
    SignatureReplayedError,
)
from lethe.signing.http import MAX_WINDOW, SignedBy
from lethe.signing.keys import Algorithm, PublicKey, algorithm_of, load_public_key
from models import (
    RequesterKey,
    UsedNonce,
)
from models.database import bulk
from models.database.session import unsynced

Role = Literal["requester", "client"]
MAX_BATCH = 256  # nonces in one transaction
MOST_KEYS = 10_000  # in a process's memory, about 1 KiB each
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
        self._in_use: set[tuple[str, str]] = set()
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
            raise replayed()

    @contextmanager
    def in_use(self, signed: SignedBy) -> Iterator[None]:
        """Refuse other calls of this process with a nonce that will be spent in the block.

        Raises:
            SignatureReplayedError: Such a call is under way.
        """
        pair = (signed.keyid, signed.nonce)
        with self._list:
            if pair in self._in_use:
                raise replayed()
            self._in_use.add(pair)
        try:
            yield
        finally:
            with self._list:
                self._in_use.discard(pair)

    def note(self, signed: SignedBy) -> None:
        """Spend the nonce of a call that was refused, unless it is spent already."""
        with suppress(SignatureReplayedError):
            self.spend(signed)

    def _write(self, batch: Sequence[_Item]) -> None:
        try:
            fresh = self._ledger.beside(lambda: self._insert([signed for signed, _ in batch]))
        except BaseException as error:  # raised again in each caller
            for _, future in batch:
                future.set_exception(error)
            return
        for signed, future in batch:
            pair = (signed.keyid, signed.nonce)
            future.set_result(pair in fresh)
            fresh.discard(pair)  # twice in one batch is once too often

    def _insert(self, batch: Sequence[SignedBy]) -> set[tuple[str, str]]:
        with self._engine.begin() as connection:
            return insert_nonces(connection, batch)


def insert_nonces(connection: Connection, batch: Sequence[SignedBy]) -> set[tuple[str, str]]:
    """Store the nonces of signatures; return the (keyid, nonce) that were not there before."""
    if not batch:
        return set()
    (fresh,) = bulk.run(connection, insertion_of_nonces(connection.dialect, batch))
    return {(keyid, nonce) for keyid, nonce in fresh}


def insertion_of_nonces(dialect: Dialect, batch: Sequence[SignedBy]) -> bulk.Statement:
    """Return what stores nonces and returns the (keyid, nonce) that were not there before."""
    expiries = {(signed.keyid, signed.nonce): signed.expires + MARGIN for signed in batch}
    # In one order, or processes that insert the same ones could wait for one another.
    rows = [(keyid, nonce, expires) for (keyid, nonce), expires in sorted(expiries.items())]
    return bulk.over(dialect, _SPEND, _NONCE, rows)


_NONCE = bulk.types(UsedNonce, keyid="keyid", nonce="nonce", expires_at="expires_at")
_SPEND = (
    "INSERT INTO used_nonces (keyid, nonce, expires_at) SELECT * FROM {rows} WHERE true "
    "ON CONFLICT DO NOTHING RETURNING keyid, nonce"
)


def replayed() -> SignatureReplayedError:
    """Return what a nonce that was spent before is answered with."""
    return SignatureReplayedError("this nonce was used before: sign again with a new one")


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key as its row had it, once that was believed.

    ref: what the log calls its registration. confirmed: whether a second person confirmed whose
    it is. row: all its columns as they are stored, by which any later change is noticed. tag:
    what the list of revocations names it by.
    """

    public: PublicKey
    algorithm: Algorithm
    role: str
    client: str | None
    subject: str | None
    ref: str | None
    confirmed: bool
    row: tuple[Any, ...]
    tag: str

    def same_as(self, other: "KnownKey") -> bool:
        """Return whether both are one registration with the same rights, however it is stored.

        It may have been confirmed since.
        """
        return replace(self, row=other.row, confirmed=other.confirmed) == other


class KeyRing:
    """Keys that verified signatures lately, so that most signatures need no database.

    What it holds may be out of date: whoever verified by it compares the whole row with the
    stored one, and asks the list of revocations, in the writer's transaction.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, KnownKey] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, keyid: str) -> KnownKey:
        """Return a key that was read before. Raises KeyUnknownError if it was not."""
        with self._lock:
            if (found := self._known.get(keyid)) is None:
                raise unknown_key()
            self._known.move_to_end(keyid)
            return found

    def read(self, session: Session, keyid: str) -> KnownKey:
        """Read a key from its row, and remember it.

        Raises:
            KeyUnknownError: It was never registered, or it was revoked.
        """
        row = believed(session, RequesterKey, keyid)
        with self._lock:
            self._known.pop(keyid, None)
        if row is None or row.revoked_at is not None:
            raise unknown_key()
        public = load_public_key(row.public_key.encode())
        connection = session.connection()  # of the same snapshot
        ((stored,),) = bulk.run(connection, selection_of_keys(connection.dialect, [keyid]))
        rights = row.role, row.client, row.subject, row.ref, row.confirmed_by is not None
        tag = key_rows(session).tag(row)
        found = KnownKey(public, algorithm_of(public), *rights, stored, tag)
        with self._lock:
            self._known[keyid] = found
            if len(self._known) > MOST_KEYS:
                self._known.popitem(last=False)
        return found


def selection_of_keys(dialect: Dialect, keyids: Sequence[str]) -> bulk.Statement:
    """Return what reads the rows of keys as they are stored, the id first."""
    return bulk.over(dialect, _READ_KEYS, _KEYID, [(keyid,) for keyid in keyids])


_KEYID = bulk.types(RequesterKey, keyid="keyid")
_READ_KEYS = (
    "SELECT held.keyid, held.* FROM {rows} JOIN requester_keys held ON held.keyid = given.keyid"
)


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
    check_role(key.role, role)
    return key


def check_role(held: str, role: Role) -> None:
    """Raise KeyNotEntitledError unless a key holds the role that a call demands."""
    if held != role:
        raise KeyNotEntitledError(f"this call is signed with a key of role {role}")


def unknown_key() -> KeyUnknownError:
    """Return the one answer for keys that were never registered and those that were revoked.

    Another answer would tell anybody which ids were ever given out.
    """
    return KeyUnknownError(
        "no key is registered under this keyid, or it was revoked: sign with a current one"
    )
