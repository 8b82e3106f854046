"""Compares what a job reads with the signed log: versions, requests, uploads, held-out rows.

Anyone with write access to the database can change the tables, but not the log.

Versions: the log vouches for a model's last version by a certificate, or as learned. An
erasure's version that was refuted or never judged may have any rows, since its digests are only
a worker's claim. In the log, the entries of the requests executed in a version directly follow
the version's entry, in the same transaction, so the log alone tells which they are.

Requests and uploads: a request could be given another's sealed scope for a while and have its
own restored before a comparison. So the comparison uses the same object that the scope is read
from: a row read again may differ. A contribution's upload is compared by the digest of the file
that is learned.

Held-out rows: the log commits to the file by its digest, under a salt in the file. An erasure
writes a new file without the row, destroys the old file's key, and logs the new digest. So the
rows behind a published accuracy cannot be changed, or the old file kept, without detection.
"""

from collections.abc import Iterator, Sequence

from sqlmodel import Session, col, select

from app.ledger.journal import digests_of
from app.ledger.sequencer import Ledger
from app.ledger.storage import LogDamagedError, read_entries
from app.problems import UnloggedVersionError
from app.reconcile.deleted import deleted_in
from app.reconcile.findings import FsckReport
from app.reconcile.judgement import CERTIFIED, ESCALATED, EXECUTED, RECEIVED, Event, opened
from app.reconcile.model_events import (
    KIND,
    REQUEST,
    model_events,
    requests_events,
    signed_leaf,
    signed_leaves,
)
from app.reconcile.paged import ModelEvents
from app.vault.errors import SealError
from app.vault.master import UPLOAD, RootSecret, upload_tag
from lethe.log.entries import MODEL_EVENT, CommitmentError, EntryError, Leaf, parse_leaf
from lethe.log.proofs import ProofError
from models import (
    Artifact,
    Contribution,
    ErasureRequest,
    LogEntry,
    Model,
    ModelVersion,
    RequestEvent,
)
from models.database.session import read_by_id, reading

VERSION = "model.version"
QUARANTINED, RELEASED = "model.quarantined", "model.released"
ENTRIES = 500  # in memory at once


def versions_of(ledger: Ledger, model: Model) -> ModelEvents:
    """Return (index, leaf) of each version of a model, read on demand, from version 1 on."""
    return model_events(ledger, model.ref, VERSION)


def logged_leaf(ledger: Ledger, model: Model, version: ModelVersion) -> Leaf:
    """Return the log's entry of a version, found by its number.

    Raises UnloggedVersionError: the row points at another entry, or contradicts this one.
    """
    known = versions_of(ledger, model)
    if not 1 <= version.number <= len(known):
        raise UnloggedVersionError("a version has no entry in the log")
    index, leaf = known[version.number - 1]
    if index != version.log_index:
        raise UnloggedVersionError("a version points at the entry of another one")
    recorded = digests_of(version)
    if recorded != {name: leaf.digests.get(name) for name in recorded}:
        raise UnloggedVersionError("the tables and the log disagree on a version")
    return leaf


def is_withdrawn(ledger: Ledger, model: Model, number: int) -> bool:
    """Return whether a later version in the log withdrew all before it.

    Every version does that is not made by a contribution: an erasure, a refit or a mend.
    """
    later = versions_of(ledger, model)[number:]
    return any("added" not in leaf.digests for _, leaf in later)


def unwithdrawn(ledger: Ledger, model: Model, number: int) -> dict[int, Leaf]:
    """Return the versions before `number` that none of those withdrew, newest first."""
    known = versions_of(ledger, model)
    found: dict[int, Leaf] = {}
    for earlier in range(min(number - 1, len(known)), 0, -1):
        _, found[earlier] = known[earlier - 1]
        if "added" not in found[earlier].digests:
            break
    return found


# The entries that follow a version in its transaction if no erasure made it.
LEARNED = ("contribution.learned", "model.released")


def vouched_version(ledger: Ledger, ref: str) -> Leaf | None:
    """Return the log's last version of a model, None if nothing vouches for it.

    All leaves are read and hashed. Raises as `signed_leaves`.
    """
    entries = dict(signed_leaves(ledger, lambda data: KIND in data or REQUEST in data))
    leaves = {index: parse_leaf(data) for index, data in entries.items()}
    own = [index for index, leaf in leaves.items() if (leaf.event, leaf.ref) == (VERSION, ref)]
    if not own:
        return None
    last = own[-1]
    executed: set[str | None] = set()
    index = last + 1
    while (leaf := leaves.get(index)) is not None:
        index += 1
        if leaf.event == EXECUTED:
            executed.add(leaf.ref)
        elif leaf.event == ESCALATED or leaf.ref == ref:
            if leaf.event in LEARNED and not executed:
                return leaves[last]
        else:
            break
    certified = {
        leaf.ref for index, leaf in leaves.items() if index > last and leaf.event == CERTIFIED
    }
    return leaves[last] if executed and executed <= certified else None


UPLOADED = ("contribution.received", "model.registered")  # events that commit to an upload


def is_as_received(request: ErasureRequest, model: Model, events: Sequence[Event]) -> bool:
    """Return whether a request has the model, scope and method of its logged receipt."""
    if not events or events[0].event != RECEIVED or events[0].index != request.log_index:
        return False
    received = events[0].payload
    stored = {"model": model.ref, "scope": request.scope, "method": request.method}
    return all(received.get(name) == value for name, value in stored.items())


def changed_since_received(
    ledger: Ledger, session: Session, model: Model, requests: Sequence[ErasureRequest]
) -> set[str]:
    """Return the ids of a model's open requests whose rows differ from their receipt.

    Raises as `requests_events`.
    """
    leaves = requests_events(ledger, [one.ref for one in requests])
    first = [index for own in leaves.values() for index, _ in own[:1]]
    read_by_id(session, RequestEvent, first)  # one query: the session caches the rows
    return {
        one.id
        for one in requests
        if not is_as_received(one, model, _received(session, one, leaves[one.ref]))
    }


def _received(
    session: Session, request: ErasureRequest, leaves: Sequence[tuple[int, Leaf]]
) -> list[Event]:
    """Return a request's first event, or none if its stored opening does not open it."""
    try:
        return opened(session, request, leaves[:1])
    except (CommitmentError, EntryError):
        return []


def received_upload(
    ledger: Ledger,
    root_secret: RootSecret,
    model: Model,
    contribution: Contribution,
    digest: str,
) -> Leaf | None:
    """Return a contribution's log entry, None if it is for another upload or model.

    digest: hex SHA-256 of the opened file.

    Raises LetheError: the log cannot be read.
    """
    try:
        leaf = signed_leaf(ledger, contribution.log_index)
    except (EntryError, ProofError):
        return None
    return leaf if is_of_upload(leaf, root_secret, model, contribution, digest) else None


def is_of_upload(
    leaf: Leaf, root_secret: RootSecret, model: Model, contribution: Contribution, digest: str
) -> bool:
    """Return whether a log entry records this upload of a contribution to a model."""
    if leaf.kind != MODEL_EVENT or leaf.event not in UPLOADED or leaf.ref != model.ref:
        return False
    try:
        tag = upload_tag(root_secret, model, contribution.id, digest)
    except SealError:  # the model's key belongs to another reference
        return False
    return leaf.digests.get(UPLOAD) == tag


def is_quarantined(ledger: Ledger, ref: str) -> bool:
    """Return whether a model is out of service by the log. Raises as `model_events`."""
    ends = [model_events(ledger, ref, event) for event in (QUARANTINED, RELEASED)]
    went, came = (found[len(found) - 1][0] if len(found) else -1 for found in ends)
    return went > came


def was_learned(ledger: Ledger, tag: str, after: int) -> bool:
    """Return whether the log has an upload as learned, in an entry after that of its receipt.

    tag: of the upload, as in its entries. Few entries follow: rows are learned soon.

    Raises LogDamagedError: an entry is missing or was changed; GuardError: as `remembered`.
    """
    key, end = ledger.entry_key, ledger.remembered().size
    assert key is not None
    # A snapshot of its own, from after the size was read: it has all these entries.
    with Session(reading(ledger.engine)) as session:
        for start in range(after + 1, end, ENTRIES):
            stop = min(start + ENTRIES, end)
            found = read_entries(session, start, stop)
            if len(found) < stop - start or not all(map(key.is_authentic, found.values())):
                raise LogDamagedError("an entry of the log is missing or was changed")
            learned = (one for one in found.values() if one.event == LEARNED[0])
            if any(parse_leaf(one.leaf).digests.get(UPLOAD) == tag for one in learned):
                return True
    return False


HELD_OUT_EVENT = "model.held-out"
HELD_OUT_KIND = "held-out"  # the artifact's kind


def logged_digest(ledger: Ledger, ref: str) -> str | None:
    """Return the logged digest of a model's held-out rows, None if it has none.

    Raises LetheError: the log cannot be read, or is not the signed one.
    """
    entries = model_events(ledger, ref, HELD_OUT_EVENT)
    return entries[len(entries) - 1][1].digests.get("rows") if len(entries) else None


def check_held_out(session: Session, report: FsckReport) -> None:
    """Report held-out rows that are only stored, and those that are only in the log."""
    logged = dict(_logged(session))
    query = select(Artifact.digest).where(
        Artifact.kind == HELD_OUT_KIND, col(Artifact.wrapped_key).is_not(None)
    )
    stored = set(session.exec(query))
    for _ in sorted(stored - logged.keys()):
        report.add("held-out", "held-out rows are stored that were removed by the log")
    for digest in sorted(logged.keys() - stored):
        report.add("held-out", "the held-out rows of a model are not stored", logged[digest])


def _logged(session: Session) -> Iterator[tuple[str, int]]:
    """Yield the digest and index of each model's last entry on held-out rows."""
    for ref in set(session.exec(select(Model.ref))) - deleted_in(session):
        last = session.exec(
            select(LogEntry.index, LogEntry.leaf)
            .where(
                LogEntry.kind == MODEL_EVENT,
                LogEntry.ref == ref,
                LogEntry.event == HELD_OUT_EVENT,
            )
            .order_by(col(LogEntry.index).desc())
            .limit(1)
        ).first()
        if last is not None and (digest := parse_leaf(last[1]).digests.get("rows")):
            yield digest, last[0]
