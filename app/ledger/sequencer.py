"""The sequencer: the one way into the log.

    transaction 1   entries, nodes and whatever else the caller writes        durable
    guard           size and root beside the key                              durable
    transaction 2   the signed note                                           public

Nothing is signed before it is durable, and nothing is published before the guard remembers
it. A crash between two of these lines loses nothing: the next transaction or the next start
goes on at the following line.

What lies above the guard in the database is signed only if each entry has a MAC under
`entries.key` and the tree over them is computed from their leaves (`app.ledger.tail`): who can
write the database, and has no key, has nothing signed.
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
from app.ledger.named import require_named
from app.ledger.receipt import (
    Appended,
    EntryReceipt,
    Published,
    UnpublishedError,
    read_receipt,
)
from app.ledger.signers import LogSigners, Signers
from app.ledger.storage import NodeCache, NodeTable
from app.ledger.tail import Tail, read_on, read_tail
from app.ledger.transaction import Transaction
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

RECENT = 16  # transactions whose receipts are kept in memory: those who wait are answered

T = TypeVar("T")


class LogMissingError(LetheError):
    """The database holds no log."""

    slug = "log-missing"
    title = "There is no log"
    status = 503


class LogExistsError(LetheError):
    """A log is begun only once."""

    slug = "log-exists"
    title = "A log already exists"
    status = 409


class LogBusyError(LetheError):
    """Others of this process have been in the log's transactions for too long."""

    slug = "log-busy"
    title = "The log is busy"
    status = 503


class Ledger:
    """A log in a database, the key that signs it and the guard beside that key.

    Any number of threads and processes may hold one on the same database and guard. Build
    it with `app.ledger.startup`, which also checks that it may be used. Without `entry_key` it
    can only be examined: nothing is appended or signed.
    """

    def __init__(
        self,
        engine: Engine,
        signers: Signers,
        guard: SigningGuard,
        entry_key: EntryKey | None,
    ) -> None:
        self.engine = engine
        self.guard = guard
        self.entry_key = entry_key
        self._source = signers
        self._named: LogSigners | None = None  # those that the log's entries named at a look
        self.nodes = NodeCache()
        self._proved = 0  # entries that the log has at least
        self._recent: deque[Published] = deque(maxlen=RECENT)
        # The log as this process last verified it, all of it published.
        self._known: Tail | None = None
        self._locking = unbounded(engine)
        # Threads of one process queue here in turn: SQLite's own lock is polled with sleeps.
        self._lock = threading.Lock()
        self._holder: int | None = None
        self._before: Tail | None = None  # the log before the transaction whose effect runs
        self._waited = 0.0  # seconds, of the thread whose turn it is
        self._contended = False  # other processes had the lock the last time

    @property
    def _signers(self) -> LogSigners:
        return self._source.current()

    @property
    def keys(self) -> LogKeys:
        """All public keys of the log, now and before, oldest first."""
        return self._signers.keys

    def known(self, role: str) -> list[NoteVerifier]:
        """Return the public keys of a role, LOG or ML_DSA, oldest first."""
        return self._signers.known(role)

    def signing(self, role: str) -> list[NoteVerifier]:
        """Return the public halves of the keys of a role that sign now."""
        return self._signers.signing(role)

    @property
    def origin(self) -> str:
        """The log's name."""
        return self._signers.signers[0].name

    @property
    def verifier(self) -> NoteVerifier:
        """The public key of the log's checkpoints; in an overlap the older one of both."""
        return self._signers.signers[0].verifier

    def open(self, note: str) -> Checkpoint:
        """Return the checkpoint of a note that a key of this log signed, now or before.

        Raises:
            NoteError, CheckpointError: None did, or it is no checkpoint of this log.
        """
        return self.keys.open(note)[0]

    def has_keys_of(self, other: "Ledger") -> bool:
        """Return whether both sign with the same keys, and have the same key of entries."""
        if self.entry_key is None or other.entry_key is None:
            return False
        same = self.entry_key.same_as(other.entry_key)
        return same and self._signers.vkeys == other._signers.vkeys

    def transact(
        self,
        effect: Callable[[Transaction], T],
        *,
        checkpoint: bool = True,
        opening: Callable[[], Sequence[Statement]] = tuple,
    ) -> T:
        """Run `effect` in one writer transaction, commit it and publish a checkpoint.

        opening: returns statements that run before all else under the lock; their rows are in
        the transaction's `answers`. If other processes had the lock the last time, it is
        called once the lock is taken.

        When this returns, all that `effect` wrote is durable and, with `checkpoint`, a signed
        note over its entries is stored. If `effect` raises, nothing of it is stored. What goes
        wrong after the commit (a full disk, a guard that refuses) is an UnpublishedError:
        `effect` is durable all the same and the next transaction or start publishes it.

        Objects that `effect` returns stay readable. It must not call `transact` itself.

        Raises:
            LogMissingError: No log was begun.
            GuardError: The log may not be signed; `effect` was not run.
            KeyMissingError: The log does not name the key that would sign it; likewise.
            LogBusyError: Its turn did not come within WAIT_S; `effect` was not run.
            UnpublishedError: All is stored, and no checkpoint covers it yet.
        """
        with traces.part("log transaction") as span, self._turn():
            with self._writing(self._known, opening) as (session, state):
                # Before anything is committed: an entry that can never be signed is no entry.
                tail = self._verified(session, state, self._known)
                pending = state.published != state.size
                tx = Transaction(session, tail, self._required_key(), state)
                self._before = tail
                try:
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
        """Return what the guard remembers; inside a transaction, all entries before it.

        An entry may be committed and not signed yet: publishing it failed, or another process
        is about to. An effect that did not see it would append it again.

        Raises:
            GuardError: As `SigningGuard.advance`.
        """
        held = self.guard.read()
        before = self._before if self._holder == threading.get_ident() else None
        if before is None or before.peaks.size == held.size:
            return held
        whole = Checkpoint(self.origin, before.peaks.size, before.peaks.root())
        self.guard.advance(whole, before.root_at)  # each entry is durable, and its MAC is right
        return whole

    def require_named(self) -> None:
        """Return if the keys that sign are those that the log names. Raises KeyMissingError."""
        with self._reading() as session:
            require_named(session, self.signing(LOG))

    def beside(self, effect: Callable[[], T]) -> T:
        """Run `effect`, which writes in a transaction of its own and appends no entry.

        On SQLite, where there is one writer, it takes its turn with those of this process.
        """
        if self.engine.dialect.name != "sqlite":
            return effect()
        with self._turn():
            return effect()

    def publish_checkpoint(self) -> LogCheckpoint:
        """Sign and store a checkpoint over all durable entries, unless there is one.

        Raises:
            LogMissingError: No log was begun.
            GuardError: The log may not be signed.
        """
        with self._turn():
            self._publish(self._known)
            return self.latest()

    def begin(self) -> None:
        """Begin the log: the guard and the checkpoint of the empty tree.

        Raises:
            LogExistsError: The database holds a log.
            GuardExistsError: The key has signed a log before.
        """
        first = Checkpoint(self.origin, 0, EMPTY_ROOT)
        with self._turn(), self._writing() as (session, state):
            if state.published is not None or state.size:
                raise LogExistsError("the database already holds a log, and keeps it")
            try:
                self.guard.create(first)
            except GuardExistsError:
                # A crash between guard and commit. Over the empty tree there is one text
                # only, so to sign it again forks nothing.
                if self.guard.read() != first:
                    raise
            self._store(session, first)

    def start(self) -> None:
        """Check that key, guard and log belong together, and publish what a crash left.

        Raises:
            LogMissingError: The database holds no log.
            GuardError: The log is not the one that was signed, or the guard is missing; the
                message names the remedy.
            KeyMissingError: entries.key is another log's.
        """
        with self._turn():
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
        """A writer session under the log's lock, in which nothing was checked.

        For `app.ledger.recover`, which proves what it writes against the guard.
        """
        with self._turn(), Session(self.engine, expire_on_commit=False) as session:
            lock.take_lock(session)
            yield session

    def sign(self, checkpoint: Checkpoint) -> str:
        """Return the note of a checkpoint that the guard remembers.

        Raises:
            ForkedError: The guard's last one is another.
        """
        if self.guard.read() != checkpoint:
            raise ForkedError("only what the guard remembers is signed")
        return self._signers.checkpoint(checkpoint)

    def size(self, session: Session) -> int:
        """Return how many entries the log has, published or not."""
        return storage.read_size(session)

    def latest(self) -> LogCheckpoint:
        """Return the published checkpoint.

        Raises:
            LogMissingError: No log was begun.
        """
        with self._reading() as session:
            latest = self._require_latest(session)
        self._proved = max(self._proved, latest.size)
        return latest

    def recent_receipt(self, index: int) -> EntryReceipt | None:
        """Return the receipt of an entry that this process published just now, from memory."""
        for one in tuple(self._recent):
            if (found := one.receipt(index)) is not None:
                return found
        return None

    def receipt(self, index: int) -> EntryReceipt:
        """Return the receipt of entry `index`: always the same one.

        Raises:
            ProofError: There is no such entry.
            UnpublishedError: No checkpoint covers it yet.
        """
        with self._reading() as session:
            return read_receipt(session, index)

    def sign_trust_root(self, digest: bytes) -> str:
        """Return the signature lines of the log's keys over the SHA-256 of a trust root."""
        return self._signers.trust_root(digest)

    def cose_receipt(self, entry: EntryReceipt, subject: str) -> bytes:
        """Return an entry's receipt in COSE. Raises as `app.ledger.cose_receipt`."""
        return sign_receipt(self._signers.signers[0], entry, subject, self.keys)

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """Prove that entry `index` is in the tree of the first `size` entries.

        Raises:
            ProofError: There is no such entry, or no such tree yet.
        """
        with self._reading() as session:
            self._require_size(session, size)
            nodes = NodeTable(session, self.nodes)
            return nodes.compute(lambda read: inclusion_proof(index, size, read))

    def consistency(self, old: int, new: int) -> list[bytes]:
        """Prove that the tree of `new` entries extends the tree of `old` entries.

        Raises:
            ProofError: Not 0 < old <= new, or there is no such tree yet.
        """
        with self._reading() as session:
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
        """Return the log once all that is above the guard is verified.

        known: the log as this process verified it before. What the database says now of its
        entries is not asked: what is signed next extends what was verified.

        Raises:
            LogMissingError: No log was begun.
            GuardError: The log is not the one that was signed.
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
            # Only old keys: the guard is durable before a note is stored.
            stored = self._open_stored(self._require_latest(session))
            if stored.size > state.size or tail.root_at(stored.size) != stored.root:
                raise ForkedError(
                    "the published checkpoint is not one of the entries in the database: "
                    "restore its newest backup, then run `lethe log fsck`"
                )
        if (signers := self._signers) is not self._named:  # at the start, and after a rotation
            require_named(session, signers.signing(LOG))
            self._named = signers
        return tail

    def _extended(
        self, session: Session, state: LogState, held: Checkpoint, known: Tail | None
    ) -> Tail | None:
        """Return `known` and the entries above it, verified; None if they are another log's."""
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
        """Check an entry whose leaf was signed: a key that does not fit it fits none."""
        self._require_latest(session)
        root_at = NodeTable(session).root_at
        last = self.guard.check(self.origin, storage.read_size(session), root_at).size - 1
        entry = storage.read_entries(session, last, last + 1).get(last)
        if entry is None:
            return
        # The columns beside the leaf may have been changed: that is for fsck to say.
        own = self._required_key().row(last, entry.leaf, date.fromisoformat(entry.day))
        if own.mac != entry.mac:
            raise KeyMissingError(
                f"entries.key is not the key of this log, of which entry {last} was signed: "
                "restore it from the backup of the keys directory that belongs to this database"
            )

    def _publish_stored(self, tail: Tail, appended: Appended | None) -> None:
        """Publish what was committed. Raises UnpublishedError, and logs why, if it cannot."""
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
        """Sign a checkpoint over all durable entries, unless there is one.

        known: the log as this thread left it; what others appended since is verified first.
        appended: entries of it whose receipts somebody waits for.
        """

        def covering() -> Sequence[Statement]:
            if appended is None:
                return ()
            return [storage.selection_of_covering(self.engine.dialect, appended.start)]

        with self._writing(known, covering) as (session, state):
            tail = self._verified(session, state, known)
            if state.published == state.size or any(state.answers):
                # What others appended since then is theirs to publish.
                self._remember(tail, appended, *state.answers)
                return
            checkpoint = Checkpoint(self.origin, tail.peaks.size, tail.peaks.root())
            self.guard.advance(checkpoint, tail.root_at)
            reached("checkpoint.guarded")
            # Who was frozen meanwhile lost the lock with the transaction: its note stays here.
            note = self._store(session, checkpoint)
        reached("checkpoint.committed")
        self._known = tail.published(checkpoint)
        # Nobody published a smaller one over these entries: there was none under the lock.
        if appended is not None:
            self._recent.append(Published(appended, checkpoint.size, note, tail.nodes))

    def _remember(
        self, tail: Tail, appended: Appended | None, *covering: Sequence[tuple[Any, ...]]
    ) -> None:
        """Keep what another process published: the log, and the receipts of `appended`.

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
        note = self._signers.checkpoint(checkpoint)
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
    def _turn(self) -> Iterator[None]:
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
            if alone := self._contended:
                self._contended = lock.lock_alone(session)
            state = lock.lock_log(session, size, opening(), locked=alone)
            self._contended |= state.contended
            LOCK_WAIT.observe(self._waited + perf_counter() - begun)
            self._waited = 0.0  # of a turn's second transaction
            yield session, state

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        with Session(reading(self.engine), expire_on_commit=False) as session:
            yield session
