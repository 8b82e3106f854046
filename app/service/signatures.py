"""Signatures of calls: the nonce is spent once, the key is current and has the right role.

A nonce is spent as soon as the signature verifies and before the body is read, whatever the
outcome: an eavesdropper cannot send a refused call again.
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
from lethe.signing.errors import KeyNotEntitledError, KeyUnknownError, SignatureReplayedError
from lethe.signing.http import MAX_WINDOW, SignedBy
from lethe.signing.keys import Algorithm, PublicKey, algorithm_of, load_public_key
from models import RequesterKey, UsedNonce
from models.database import bulk
from models.database.session import unsynced

Role = Literal["requester", "client"]
MAX_BATCH = 256  # nonces in one transaction
MOST_KEYS = 10_000  # in a process's memory, about 1 KiB each
# Kept past expiry, because the API's clock checks expiry and the database's deletes nonces: the
# clocks may differ by the longest life of a signature, plus a minute for calls under way.
MARGIN = MAX_WINDOW + timedelta(minutes=1)
_Item = tuple[SignedBy, "Future[bool]"]


class NonceBook:
    """Spends nonces; calls that arrive together share one transaction.

    The transaction is not synced to the disk by itself, but with the next one that is, so a
    call's changes are never durable before its nonce. A power cut can only lose nonces of calls
    that changed nothing, in the last moments; a killed process loses none.
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

        Raises SignatureReplayedError if (keyid, nonce) was spent before.
        """
        future: Future[bool] = Future()
        with self._list:
            self._waiting.append((signed, future))
        # A caller that waits here mostly finds that another has written its nonce too.
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
        """Refuse concurrent calls of this process with a nonce that the block will spend.

        Raises SignatureReplayedError if such a call is under way.
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
    """Return the statement that stores nonces and returns the new (keyid, nonce) pairs."""
    expiries = {(signed.keyid, signed.nonce): signed.expires + MARGIN for signed in batch}
    # Sorted, so that processes that insert the same ones cannot deadlock.
    rows = [(keyid, nonce, expires) for (keyid, nonce), expires in sorted(expiries.items())]
    return bulk.over(dialect, _SPEND, _NONCE, rows)


_NONCE = bulk.types(UsedNonce, keyid="keyid", nonce="nonce", expires_at="expires_at")
_SPEND = (
    "INSERT INTO used_nonces (keyid, nonce, expires_at) SELECT * FROM {rows} WHERE true "
    "ON CONFLICT DO NOTHING RETURNING keyid, nonce"
)


def replayed() -> SignatureReplayedError:
    """Return the error for a nonce that was spent before."""
    return SignatureReplayedError("this nonce was used before: sign again with a new one")


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key from its row, after the row was authenticated.

    ref: the log's reference of its registration. confirmed: whether a second person confirmed
    its owner. row: all columns as stored, to detect later changes. tag: its name in the list of
    revocations.
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
        """Return whether both are one registration with the same rights.

        The stored row may differ, and the key may have been confirmed since.
        """
        return replace(self, row=other.row, confirmed=other.confirmed) == other


class KeyRing:
    """Keys that verified signatures recently, so that most signatures need no database.

    They may be outdated: after verifying, the caller compares the whole row with the stored
    one, and checks the list of revocations, in the writer's transaction.
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

        Raises KeyUnknownError if it was never registered, or it was revoked.
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
    """Return the statement that reads the stored rows of keys, the id first."""
    return bulk.over(dialect, _READ_KEYS, _KEYID, [(keyid,) for keyid in keyids])


_KEYID = bulk.types(RequesterKey, keyid="keyid")
_READ_KEYS = (
    "SELECT held.keyid, held.* FROM {rows} JOIN requester_keys held ON held.keyid = given.keyid"
)


def current_key(session: Session, signed: SignedBy, role: Role) -> RequesterKey:
    """Return the key of a verified signature, if it is still valid and has the role.

    Raises KeyUnknownError: the key was deleted, changed or revoked since the signature was
    checked; KeyNotEntitledError: the key has another role.
    """
    key = believed(session, RequesterKey, signed.keyid)
    if key is None or key.revoked_at is not None:
        raise unknown_key()
    check_role(key.role, role)
    return key


def check_role(held: str, role: Role) -> None:
    """Raise KeyNotEntitledError unless a key holds the role that a call demands."""
    if held != role:
        raise KeyNotEntitledError(
            f"this call must be signed with a key of the role {role}, and yours has another"
        )


def unknown_key() -> KeyUnknownError:
    """Return the one error for keys that were never registered and those that were revoked.

    Two errors would reveal which ids were ever registered.
    """
    return KeyUnknownError(
        "no key is registered under this keyid, or it was revoked: sign with a current one"
    )
