"""The sequencer: the only way to append to the log.

    transaction 1   entries, nodes and the caller's other writes              durable
    guard           size and root beside the key                              durable
    transaction 2   the signed note                                           public

Nothing is signed before it is durable, and nothing is published before the guard records it.
A crash between two of these lines loses nothing: the next transaction or the next start
continues at the following line.

Entries above the guard's size are signed only if each has a MAC under `entries.key`, and the
tree over them is computed from their leaves (`app.ledger.transaction`): write access to the
database without the key gets nothing signed.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from time import perf_counter
from typing import Any, TypeVar

from sqlalchemy.engine import Engine
from sqlmodel import Session

from app import traces
from app.counters import LOCK_WAIT
from app.ledger import lock, storage
from app.ledger.authority import require_authority
from app.ledger.cose_receipt import sign_receipt
from app.ledger.entry_macs import EntryKey, KeyMissingError
from app.ledger.guard import (
    ForkedError,
    GuardExistsError,
    GuardMissingError,
    SigningGuard,
    require_extends,
)
from app.ledger.lock import LogState
from app.ledger.log_files import LogSigners, Signers
from app.ledger.named import require_named
from app.ledger.receipt import Appended, EntryReceipt, Published, UnpublishedError, read_receipt
from app.ledger.storage import NodeCache, NodeTable
from app.ledger.transaction import Tail, Transaction, read_on, read_tail
from app.steps import reached
from lethe.errors import LetheError
from lethe.log.checkpoint import Checkpoint
from lethe.log.key_changes import LOG
from lethe.log.log_keys import LogKeys
from lethe.log.note import NoteError, NoteVerifier
from lethe.log.proofs import ProofError, consistency_proof, inclusion_proof
from lethe.log.tree import EMPTY_ROOT
from models import LogCheckpoint
from models.database import bulk
from models.database.bulk import Statement
from models.database.session import WAIT_S, reading, unbounded
from models.database.types import utcnow

log = logging.getLogger(__name__)

RECENT = 16  # transactions whose receipts are kept in memory for waiting callers

T = TypeVar("T")


class LogMissingError(LetheError):
    """The database holds no log."""

    slug, title, status = "log-missing", "There is no log", 503


class LogExistsError(LetheError):
    """The database already holds a log."""

    slug, title, status = "log-exists", "A log already exists", 409


class LogBusyError(LetheError):
    """Other threads of this process have kept the log's transactions busy for too long."""

    slug, title, status = "log-busy", "The log is busy", 503


class Ledger:
    """A log in a database, its signing key and the guard beside that key.

    Any number of threads and processes may open a ledger on the same database and guard.
    `app.ledger.startup` builds one and checks that it may be used. Without `entry_key` the log
    can only be examined: nothing is appended or signed.
    """

    def __init__(
        self, engine: Engine, signers: Signers, guard: SigningGuard, entry_key: EntryKey | None
    ) -> None:
        self.engine = engine
        self.guard = guard
        self.entry_key = entry_key
        self.source = signers
        self._named: LogSigners | None = None  # signers last verified against the entries
        self.nodes = NodeCache()
        self._proved = 0  # lower bound of the log's size
        self._recent: deque[Published] = deque(maxlen=RECENT)
        # The log as this process last verified it, fully published.
        self._known: Tail | None = None
        self._locking = unbounded(engine)
        # Threads of a process queue here: waiting for SQLite's own lock polls with sleeps.
        self._lock = threading.Lock()
        self._holder: int | None = None
        self._before: Tail | None = None  # the log before the running transaction
        self._waited = 0.0  # seconds that the current holder waited for its turn
        self.contended = False  # another process held the lock the last time

    @property
    def signers(self) -> LogSigners:
        """The keys that sign checkpoints now."""
        return self.source.current()

    @property
    def keys(self) -> LogKeys:
        """All public keys of the log, current and retired, oldest first."""
        return self.signers.keys

    def known(self, role: str) -> list[NoteVerifier]:
        """Return the public keys of a role, LOG or ML_DSA, oldest first."""
        return self.signers.known(role)

    def signing(self, role: str) -> list[NoteVerifier]:
        """Return the public halves of the keys of a role that sign now."""
        return self.signers.signing(role)

    @property
    def origin(self) -> str:
        """The log's name."""
        return self.signers.signers[0].name

    @property
    def verifier(self) -> NoteVerifier:
        """The public key of the log's checkpoints; during an overlap, the older of the two."""
        return self.signers.signers[0].verifier

    def open(self, note: str) -> Checkpoint:
        """Return the checkpoint of a note that a current or retired key of this log signed.

        Raises NoteError or CheckpointError: no key did, or it is no checkpoint of this log.
        """
        return self.keys.open(note)[0]

    def has_keys_of(self, other: "Ledger") -> bool:
        """Return whether both have the same signing keys and the same entries.key."""
        if self.entry_key is None or other.entry_key is None:
            return False
        same = self.entry_key.same_as(other.entry_key)
        return same and self.signers.vkeys == other.signers.vkeys

    def transact(
        self,
        effect: Callable[[Transaction], T],
        *,
        checkpoint: bool = True,
        opening: Callable[[], Sequence[Statement]] = tuple,
    ) -> T:
        """Run `effect` in one writer transaction, commit it and publish a checkpoint.

        opening: returns statements that run first under the lock; their rows become the
        transaction's `answers`. If another process held the lock the last time, it is called
        after the lock is taken.

        When this returns, all that `effect` wrote is durable and, with `checkpoint`, a signed
        note over its entries is stored. If `effect` raises, none of its writes are stored. A
        failure after the commit (a full disk, a guard that refuses) is an UnpublishedError:
        the writes are durable, and the next transaction or start publishes them.

        Objects that `effect` returns stay readable. It must not call `transact` itself.

        Raises:
            UnauthorizedError, DrpAgentError: The caller's token or key was revoked meanwhile.
            LogMissingError: No log was begun.
            GuardError: The log may not be signed; `effect` was not run.
            KeyMissingError: The log does not name the signing key; `effect` was not run.
            LogBusyError: Its turn did not come within WAIT_S; `effect` was not run.
            UnpublishedError: All is stored, but no checkpoint covers it yet.
        """
        with traces.part("log transaction") as span, self.turn():
            with self._writing(self._known, opening) as (session, state):
                # Before the commit: an entry that can never be signed must not be stored.
                tail = self._verified(session, state, self._known)
                pending = state.published != state.size
                tx = Transaction(session, tail, self._required_key(), state)
                self._before = tail
                try:
                    require_authority(session)
                    result = effect(tx)
                finally:
                    self._before = None
                appended = tx.commit()
            if appended is not None:
                span.set("lethe.log.entries", len(appended.leaves))
                reached("ledger.committed")
            if checkpoint and (appended is not None or pending):
                self._publish_stored(tail, appended)
        return result

    def remembered(self) -> Checkpoint:
        """Return the guard's checkpoint; inside a transaction, one over all entries before it.

        An entry may be committed but not signed yet: publishing failed, or another process is
        about to. An effect that missed such an entry would append it again. Raises GuardError:
        as `SigningGuard.advance`.
        """
        held = self.guard.read()
        before = self._before if self._holder == threading.get_ident() else None
        if before is None or before.peaks.size == held.size:
            return held
        whole = Checkpoint(self.origin, before.peaks.size, before.peaks.root())
        self.guard.advance(whole, before.root_at)  # all entries are durable and authentic
        return whole

    def require_named(self) -> None:
        """Check that the log names the signing keys. Raises KeyMissingError if not."""
        with Session(reading(self.engine)) as session:
            require_named(session, self.signing(LOG))

    def beside(self, effect: Callable[[], T]) -> T:
        """Run `effect`, which writes in its own transaction and appends no entry.

        SQLite has one writer, so there the effect queues with this process's transactions.
        """
        if self.engine.dialect.name != "sqlite":
            return effect()
        with self.turn():
            return effect()

    def publish_checkpoint(self) -> LogCheckpoint:
        """Sign and store a checkpoint over all durable entries, unless one exists.

        Raises LogMissingError: no log was begun; GuardError: the log may not be signed.
        """
        with self.turn():
            self._publish(self._known)
            return self.latest()

    def begin(self) -> None:
        """Begin the log: create the guard and sign the checkpoint of the empty tree.

        Raises LogExistsError: the database holds a log; GuardExistsError: the key has signed a
        log before.
        """
        first = Checkpoint(self.origin, 0, EMPTY_ROOT)
        with self.turn(), self._writing() as (session, state):
            if state.published is not None or state.size:
                raise LogExistsError(
                    "the database already holds a log, and keeps it: for another log, set "
                    "LETHE_DATABASE_URL to an empty database"
                )
            try:
                self.guard.create(first)
            except GuardExistsError:
                # A crash between guard and commit. The empty tree has only one checkpoint
                # text, so signing it again forks nothing.
                if self.guard.read() != first:
                    raise
            self._store(session, first)

    def start(self) -> None:
        """Check that key, guard and log belong together; publish entries left by a crash.

        Raises:
            LogMissingError: The database holds no log.
            GuardError: The log is not the signed one, or the guard is missing; the message
                names the remedy.
            KeyMissingError: entries.key belongs to another log.
        """
        with self.turn():
            with self._writing() as (session, state):
                self._require_own_key(session)
                stored = self._open_stored(self._require_latest(session))
                tail = self._verified(session, state, None)
                held = self.guard.read()
                if held.size < stored.size:  # the keys came from a backup
                    self.guard.advance(stored, tail.root_at)
            self._publish(None)

    @contextmanager
    def repairing(self) -> Iterator[Session]:
        """A writer session under the log's lock, without any checks.

        For `app.ledger.recover`, which proves what it writes against the guard.
        """
        with self.turn(), Session(self.engine, expire_on_commit=False) as session:
            lock.take_lock(session)
            yield session

    def sign(self, checkpoint: Checkpoint) -> str:
        """Return the signed note of the guard's last checkpoint.

        Raises ForkedError: the guard's last checkpoint is another.
        """
        if self.guard.read() != checkpoint:
            raise ForkedError("only what the guard remembers is signed")
        return self.signers.checkpoint(checkpoint)

    def size(self, session: Session) -> int:
        """Return the log's number of entries, published or not."""
        return storage.read_size(session)

    def latest(self) -> LogCheckpoint:
        """Return the published checkpoint. Raises LogMissingError: no log was begun."""
        with Session(reading(self.engine)) as session:
            latest = self._require_latest(session)
        self._proved = max(self._proved, latest.size)
        return latest

    def recent_receipt(self, index: int) -> EntryReceipt | None:
        """Return, from memory, the receipt of an entry that this process just published."""
        for one in tuple(self._recent):
            if (found := one.receipt(index)) is not None:
                return found
        return None

    def receipt(self, index: int) -> EntryReceipt:
        """Return the receipt of entry `index`; it never changes.

        Raises ProofError: there is no such entry; UnpublishedError: no checkpoint covers it
        yet.
        """
        with Session(reading(self.engine)) as session:
            return read_receipt(session, index)

    def sign_trust_root(self, digest: bytes) -> str:
        """Return the log keys' signature lines over the SHA-256 of a trust root."""
        return self.signers.trust_root(digest)

    def cose_receipt(self, entry: EntryReceipt, subject: str) -> bytes:
        """Return an entry's receipt in COSE. Raises as `app.ledger.cose_receipt`."""
        return sign_receipt(self.signers.signers[0], entry, subject, self.keys)

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """Prove that entry `index` is in the tree of the first `size` entries.

        Raises ProofError: there is no such entry, or no such tree yet.
        """
        with Session(reading(self.engine)) as session:
            self._require_size(session, size)
            nodes = NodeTable(session, self.nodes)
            return nodes.compute(lambda read: inclusion_proof(index, size, read))

    def consistency(self, old: int, new: int) -> list[bytes]:
        """Prove that the tree of `new` entries extends the tree of `old` entries.

        Raises ProofError: not 0 < old <= new, or there is no such tree yet.
        """
        with Session(reading(self.engine)) as session:
            self._require_size(session, new)
            nodes = NodeTable(session, self.nodes)
            return nodes.compute(lambda read: consistency_proof(old, new, read))

    def _require_size(self, session: Session, size: int) -> None:
        if size > self._proved:  # the log never shrinks
            self._proved = max(self._proved, storage.read_size(session))
        if size > self._proved:
            raise ProofError("the log has no tree of this size yet")

    def _open_stored(self, row: LogCheckpoint) -> Checkpoint:
        stored = Checkpoint(self.origin, row.size, row.root)
        try:
            signed = self.open(row.note)
        except NoteError:
            raise ForkedError(
                "another key or another origin signed the published checkpoint: set "
                "LETHE_ORIGIN back, or restore the keys directory that belongs to this database"
            ) from None
        if signed != stored:
            raise ForkedError(
                "a stored checkpoint says other than its signed note: restore the database, "
                "then run `lethe log fsck`"
            )
        return stored

    def _verified(self, session: Session, state: LogState, known: Tail | None) -> Tail:
        """Return the log after verifying all entries above the guard.

        known: the log as this process last verified it. Its entries are not read again: the
        next checkpoint extends the verified tree, whatever the database now holds.

        Raises LogMissingError: no log was begun; GuardError: the log is not the signed one.
        """
        if state.published is None:
            self._require_latest(session)
        held = self.guard.read()
        tail = self._extended(session, state, held, known)
        if tail is None:
            nodes = NodeTable(session)
            require_extends(held, self.origin, state.size, nodes.root_at)
            tail = read_tail(session, nodes, held, state.size, self._required_key())
        if (state.published or 0) > held.size:
            # Only with keys from a backup: the guard is durable before a note is stored.
            stored = self._open_stored(self._require_latest(session))
            if stored.size > state.size or tail.root_at(stored.size) != stored.root:
                raise ForkedError(
                    "the published checkpoint is not one of the entries in the database: "
                    "restore its newest backup, then run `lethe log fsck`"
                )
        if (signers := self.signers) is not self._named:  # at start, and after a rotation
            require_named(session, signers.signing(LOG))
            self._named = signers
        return tail

    def _extended(
        self, session: Session, state: LogState, held: Checkpoint, known: Tail | None
    ) -> Tail | None:
        """Return `known` extended by the verified entries above it, None if it cannot be."""
        if known is None or not known.signed.size <= held.size <= state.size:
            return None
        if state.size < known.peaks.size:
            return None
        if state.size == known.peaks.size and state.mac != known.mac:
            return None  # a backup of this size, or the last entry was changed
        tail = known.copy()
        read_on(session, tail, state.size, self._required_key(), state.above)
        require_extends(held, self.origin, state.size, tail.root_at)
        return tail

    def _required_key(self) -> EntryKey:
        assert self.entry_key is not None, "a ledger without it is for looking only"
        return self.entry_key

    def _require_own_key(self, session: Session) -> None:
        """Check entries.key against the last signed entry. Raises KeyMissingError."""
        self._require_latest(session)
        root_at = NodeTable(session).root_at
        last = self.guard.check(self.origin, storage.read_size(session), root_at).size - 1
        entry = storage.read_entries(session, last, last + 1).get(last)
        if entry is None:
            return
        # Use the leaf only: if other columns were changed, fsck reports it.
        own = self._required_key().row(last, entry.leaf, date.fromisoformat(entry.day))
        if own.mac != entry.mac:
            raise KeyMissingError(
                f"entries.key is not the key of this log, of which entry {last} was signed: "
                "restore it from the backup of the keys directory that belongs to this database"
            )

    def _publish_stored(self, tail: Tail, appended: Appended | None) -> None:
        """Publish what was committed. On failure, logs why and raises UnpublishedError."""
        try:
            self._publish(tail, appended)
        except Exception as error:
            why = error.detail if isinstance(error, LetheError) else type(error).__name__
            log.error("stored, but no checkpoint over it could be published: %s", why)
            raise UnpublishedError(
                "what was sent is stored, and its receipt is not available yet: send it again "
                "with the same Idempotency-Key to get it"
            ) from error

    def _publish(self, known: Tail | None, appended: Appended | None = None) -> None:
        """Sign a checkpoint over all durable entries, unless one exists.

        known: the log as this thread left it; entries appended since are verified first.
        appended: its entries whose receipts a caller waits for.
        """

        def covering() -> Sequence[Statement]:
            if appended is None:
                return ()
            return [storage.selection_of_covering(self.engine.dialect, appended.start)]

        with self._writing(known, covering) as (session, state):
            tail = self._verified(session, state, known)
            if state.published == state.size or any(state.answers):
                # Entries that other processes appended since then are theirs to publish.
                self._remember(tail, appended, *state.answers)
                return
            checkpoint = Checkpoint(self.origin, tail.peaks.size, tail.peaks.root())
            self.guard.advance(checkpoint, tail.root_at)
            reached("checkpoint.guarded")
            # If this process was frozen, the server ended its transaction: no note is stored.
            note = self._store(session, checkpoint)
        reached("checkpoint.committed")
        self._known = tail.published(checkpoint)
        # This is the smallest checkpoint over these entries: there was none under the lock.
        if appended is not None:
            self._recent.append(Published(appended, checkpoint.size, note, tail.nodes))

    def _remember(
        self, tail: Tail, appended: Appended | None, *covering: Sequence[tuple[Any, ...]]
    ) -> None:
        """Remember what another process published: the log, and the receipts of `appended`.

        covering: the smallest checkpoint over the first of these entries.
        """
        held = self.guard.read()
        if held.size == tail.peaks.size:
            self._known = tail.published(held)
        if appended is None:
            return
        for size, root, note in covering[0]:
            stored = LogCheckpoint(size=size, root=root, note=note)
            whole = appended.start + len(appended.leaves) <= size <= tail.peaks.size
            if whole and self._open_stored(stored).root == tail.root_at(size):
                self._recent.append(Published(appended, size, note, tail.nodes))

    def _store(self, session: Session, checkpoint: Checkpoint) -> str:
        note = self.signers.checkpoint(checkpoint)
        row = {
            "size": checkpoint.size,
            "root": checkpoint.root,
            "note": note,
            "signed_at": utcnow(),
        }
        insertion = bulk.insert(self.engine.dialect, LogCheckpoint, [row])
        bulk.commit(session.connection(), insertion)
        session.commit()
        return note

    def _require_latest(self, session: Session) -> LogCheckpoint:
        latest = storage.latest_checkpoint(session)
        if latest is not None:
            return latest
        try:
            held = self.guard.read()
        except GuardMissingError:
            raise LogMissingError("no log was begun here: run `lethe log init`") from None
        raise LogMissingError(
            f"the database holds no log but the key has signed one of {held.size} entries: "
            "restore its database, or, for a new log, remove the keys directory and run "
            "`lethe log init`"
        )

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Keep this process's other threads from the log. Raises LogBusyError after WAIT_S."""
        assert self._holder != threading.get_ident(), "transactions do not nest"
        begun = perf_counter()
        if not self._lock.acquire(timeout=WAIT_S):
            raise LogBusyError("others have been at the log for too long: send it again")
        self._holder, self._waited = threading.get_ident(), perf_counter() - begun
        try:
            yield
        finally:
            self._holder = None
            self._lock.release()

    @contextmanager
    def _writing(
        self, known: Tail | None = None, opening: Callable[[], Sequence[Statement]] = tuple
    ) -> Iterator[tuple[Session, LogState]]:
        with Session(self._locking, expire_on_commit=False) as session:
            begun = perf_counter()
            size = None if known is None else known.peaks.size
            if alone := self.contended:
                self.contended = lock.lock_alone(session)
            state = lock.lock_log(session, size, opening(), locked=alone)
            self.contended |= state.contended
            LOCK_WAIT.observe(self._waited + perf_counter() - begun)
            self._waited = 0.0  # for the turn's second transaction
            yield session, state
