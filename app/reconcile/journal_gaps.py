"""Tombstones that the erasure journal lacks, and which of them the log confirms.

Anyone with write access to the database alone can plant a copy of an old tombstone, of a record
that was added back since. In the journal it would erase that record from every later restore.
So a tombstone is added to the journal only if all of this holds:

- the log has an execution, for this model, of the request that the tombstone names;
- the request's draft or evidence, to whose digest its entries commit, names the record;
- the record is not stored and was not added back: either no erased record was added back to the
  model after that execution, or the stored training set is that of the log's last version.

All leaves of the log are read and compared with the signed root: otherwise an entry removed
from the database, such as one of a record added back, would go unnoticed.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.reconcile.journal import added_back, read_beside, unjournaled
from app.reconcile.judgement import EXECUTED, RECEIVED, VERIFIED, Event, opened
from app.reconcile.model_events import KIND, REF, REQUEST, signed_leaves
from app.vault.artifacts import ArtifactStore
from app.vault.journal import LINE, ErasureJournal, Line
from app.vault.master import RootSecret, open_tombstone_key, record_tag
from lethe import canonical
from lethe.certificates import shape
from lethe.certificates.evidence import Removal, parse_evidence, record_commitment
from lethe.certificates.retained_tree import retained_root
from lethe.errors import LetheError
from lethe.log.entries import MODEL_EVENT, Leaf, parse_leaf
from models import Artifact, ErasureRequest, Model, Record
from models.database.session import read_by_id

VERSION = "model.version"
EVIDENCE, DRAFT = "evidence", "draft"  # payload fields (hex SHA-256), and artifact kinds

NO_REQUEST = "they name no request"
NOT_EXECUTED = "the log has no execution of this request for this model"
NOT_OPENED = "what is stored of this request does not open the log's entries of it"
NOT_KEPT = "the evidence of this request is no longer kept"
NOT_NAMED = "the evidence of this request does not name these records"
STORED = "these records are in the training set"
BACK = "erased records were added back since, and the training set is not the log's"


@dataclass(frozen=True, slots=True)
class Gap:
    """Tags of the tombstones of one model and one request that the journal lacks.

    ref: the request's public reference; None if they name none. why: why the log does
    not confirm them; None if it does.
    """

    model: str
    ref: str | None
    tags: frozenset[bytes]
    why: str | None


@dataclass(slots=True)
class _SignedLog:
    """The relevant entries of the signed log.

    requests: entries by request ref. back: by model, the index of the last entry that added
    erased records back. retained: by model, the root (hex) of its last version's records.
    """

    requests: dict[str, list[tuple[int, Leaf]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    back: dict[str, int] = field(default_factory=dict)
    retained: dict[str, str] = field(default_factory=dict)


class _UnconfirmedError(Exception):
    """The log does not confirm a request's erasures; the text says why."""


class GapFinder:
    """Finds tombstones that `journal` lacks; reads the log at each call."""

    def __init__(
        self,
        ledger: Ledger,
        artifacts: ArtifactStore,
        root_secret: RootSecret,
        journal: ErasureJournal,
    ) -> None:
        self._ledger, self._artifacts = ledger, artifacts
        self._root_secret, self._journal = root_secret, journal

    def find(self, session: Session) -> list[Gap]:
        """Return the tombstones that the journal lacks, by model and request.

        Raises JournalError: the journal is missing or damaged; ForkedError, LogDamagedError,
        GuardError: the log is not the one that was signed.
        """
        missing = list(unjournaled(session, read_beside(session, self._journal)))
        if not missing:
            return []
        requests = _requests(session, (by for _, stones in missing for _, by in stones))
        log = self._read({request.ref for request in requests.values()})
        found = []
        for model, stones in missing:
            named: dict[str | None, set[bytes]] = defaultdict(set)
            for tag, request_id in stones:
                named[request_id].add(tag)
            for request_id, tags in named.items():
                request = None if request_id is None else requests.get(request_id)
                found += self._judge(session, model, request, tags, log)
        return sorted(found, key=lambda gap: (gap.model, gap.why or "", gap.ref or ""))

    def fill(self, session: Session, shown: Sequence[Gap]) -> tuple[int, int]:
        """Add the shown tombstones that the log still confirms; count (lines, tombstones).

        `session` holds the log's lock, so nothing is erased or added back meanwhile.

        Raises JournalError, ForkedError, LogDamagedError, GuardError: as `find`; OSError: the
        disk is full or failing.
        """
        agreed = {(gap.model, gap.ref, tag) for gap in shown if not gap.why for tag in gap.tags}
        lines = []
        for gap in self.find(session):
            if gap.why is not None or gap.ref is None:
                continue
            tags = sorted(tag for tag in gap.tags if (gap.model, gap.ref, tag) in agreed)
            for start in range(0, len(tags), LINE):
                chunk = tuple(tags[start : start + LINE])
                lines.append(Line(gap.model, erased=chunk, requests=(gap.ref,)))
        if lines:
            self._journal.append(lines)
        return len(lines), sum(len(line.erased) for line in lines)

    def _read(self, refs: set[str]) -> _SignedLog:
        wanted = {ref.encode() for ref in refs}
        log = _SignedLog()
        for index, data in signed_leaves(
            self._ledger, lambda data: KIND in data or (REQUEST in data and data[REF] in wanted)
        ):
            leaf = parse_leaf(data)
            assert leaf.ref is not None
            if leaf.kind != MODEL_EVENT:
                log.requests[leaf.ref].append((index, leaf))
            elif added_back(data) is not None:
                log.back[leaf.ref] = index
            elif leaf.event == VERSION:
                log.retained[leaf.ref] = leaf.digests.get("retained", "")
        return log

    def _judge(
        self,
        session: Session,
        model: Model,
        request: ErasureRequest | None,
        tags: set[bytes],
        log: _SignedLog,
    ) -> list[Gap]:
        if request is None:
            return [Gap(model.ref, None, frozenset(tags), NO_REQUEST)]
        try:
            executed, records = self._erased(session, model, request, log.requests[request.ref])
        except _UnconfirmedError as error:
            return [Gap(model.ref, request.ref, frozenset(tags), str(error))]
        key = open_tombstone_key(self._root_secret, model)
        query = select(Record.record, Record.salt, Record.content)
        stored = list(session.exec(query.where(Record.model_id == model.id)))
        named = tags & {record_tag(key, record) for record in records}
        stored_again = named & {record_tag(key, record) for record, *_ in stored}
        returned = executed < log.back.get(model.ref, -1) and not _is_logged(
            stored, log.retained.get(model.ref)
        )
        parts: dict[str | None, set[bytes]] = {NOT_NAMED: tags - named, STORED: stored_again}
        parts[BACK if returned else None] = named - stored_again
        return [
            Gap(model.ref, request.ref, frozenset(part), why)
            for why, part in parts.items()
            if part
        ]

    def _erased(
        self,
        session: Session,
        model: Model,
        request: ErasureRequest,
        leaves: Sequence[tuple[int, Leaf]],
    ) -> tuple[int, set[str]]:
        """Return the log index of a request's first execution, and the records it erased."""
        executed = [index for index, leaf in leaves if leaf.event == EXECUTED]
        if not executed:
            raise _UnconfirmedError(NOT_EXECUTED)
        if not request.event_key:  # retention has ended
            raise _UnconfirmedError(NOT_KEPT)
        try:
            events = opened(session, request, leaves)
            about = {one.payload.get("model") for one in events if one.event == RECEIVED}
            files = _kept(session, _files(events))
            records: set[str] = set()
            for artifact_id, kind in files:
                records |= _names(kind, self._artifacts.get(session, artifact_id))
        except LetheError:
            raise _UnconfirmedError(NOT_OPENED) from None
        if about != {model.ref}:
            raise _UnconfirmedError(NOT_EXECUTED)
        if not files:
            raise _UnconfirmedError(NOT_KEPT)
        return min(executed), records


def _requests(session: Session, named: Iterable[str | None]) -> dict[str, ErasureRequest]:
    wanted = sorted({one for one in named if one is not None})
    return {one.id: one for one in read_by_id(session, ErasureRequest, wanted)}


def _files(events: Sequence[Event]) -> list[str]:
    """Return the digests of the drafts and evidence files that a request's events name."""
    named = {EXECUTED: DRAFT, VERIFIED: EVIDENCE}
    found = (one.payload.get(named[one.event]) for one in events if one.event in named)
    return [str(digest) for digest in found if digest is not None]


def _kept(session: Session, digests: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Return id and kind of those files that can still be opened."""
    query = select(Artifact.id, Artifact.kind).where(
        col(Artifact.digest).in_(digests),
        col(Artifact.kind).in_((EVIDENCE, DRAFT)),
        col(Artifact.wrapped_key).is_not(None),
    )
    return session.exec(query).all()


def _names(kind: str, data: bytes) -> set[str]:
    """Return the erased records that a draft or an evidence file names."""
    if kind == EVIDENCE:
        removal = parse_evidence(data).removal
    else:
        removal = shape.read(Removal, canonical.decode(data)["removal"])
    return {one.record for one in removal.records}


def _is_logged(stored: Sequence[tuple[str, bytes, bytes]], root: str | None) -> bool:
    """Return whether the stored records have the retained root of the last version."""
    try:
        leaves = [
            (record_commitment(bytes(salt), record), bytes(content))
            for record, salt, content in stored
        ]
        return root is not None and retained_root(leaves).hex() == root
    except LetheError:  # a salt of the wrong length, or a record stored twice
        return False
