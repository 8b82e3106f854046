"""fsck of models: versions and heads match the log, and records match the version.

The retained root is recomputed from the ordered commitments, with a page of rows in memory, and
compared with the stored pages of its tree. Adding or removing a record changes that root;
changing a record's id or salt makes its commitment fail to open.
"""

from collections.abc import Iterator

from sqlalchemy import func
from sqlmodel import Session, col, select

from app import retained_pages
from app.ledger.journal import digests_of, stored_digest
from app.reconcile.deleted import REGISTERED, VERSION, check_deletion
from app.reconcile.findings import FsckReport, valid_leaves
from app.reconcile.inputs import QUARANTINED, RELEASED, check_held_out
from app.reconcile.model_events import CLOSED
from lethe.certificates.errors import RemovalError
from lethe.certificates.evidence import record_commitment
from lethe.certificates.retained_tree import Part, folded_root, joined
from lethe.log.entries import MODEL_EVENT, EntryError, Leaf, parse_leaf
from models import Artifact, ErasureRequest, LogEntry, Model, ModelVersion, Record, RetainedPage

FETCH = 1000  # rows in memory at once


def check_models(session: Session, report: FsckReport, first: int) -> None:
    """Compare each model's versions, heads and records with the log.

    first: Versions and records are read only of models with an entry from this index on.
    """
    unknown = (
        select(func.min(LogEntry.index))
        .join(Model, col(Model.ref) == col(LogEntry.ref), isouter=True)
        .where(LogEntry.kind == MODEL_EVENT, LogEntry.event == REGISTERED)
        .where(col(Model.id).is_(None))
        .group_by(col(LogEntry.ref))
    )
    report.add_all(
        "model", "the log has a model that the database lacks", session.exec(unknown)
    )
    for model in session.exec(select(Model).order_by(col(Model.id))).all():
        _check_registration(session, model, report)
        if check_deletion(session, model, report):
            continue
        _check_quarantine(session, model, report)
        if first == 0 or _has_entry(session, model, first):
            _check_versions(session, model, report)
            _check_records(session, model, report)
    _check_claims(session, report)
    check_held_out(session, report)


def _has_entry(session: Session, model: Model, first: int) -> bool:
    """Return whether the log has an entry of a model from index `first` on.

    `check_tree` has compared the columns of these entries with their leaves.
    """
    own = select(LogEntry.index).where(
        LogEntry.kind == MODEL_EVENT, LogEntry.ref == model.ref, col(LogEntry.index) >= first
    )
    return session.exec(own.limit(1)).first() is not None


def registration(session: Session, model: Model) -> tuple[int, str | None] | None:
    """Return the index and digest of a model's last registration before its first version.

    None if the log has none, or if the entry is invalid (reported by `check_tree`).
    """
    own = (LogEntry.kind == MODEL_EVENT, LogEntry.ref == model.ref)
    first = session.exec(
        select(func.min(LogEntry.index)).where(*own, LogEntry.event == VERSION)
    ).one()
    query = select(LogEntry.index, LogEntry.leaf).where(*own, LogEntry.event == REGISTERED)
    if first is not None:
        query = query.where(col(LogEntry.index) < first)
    last = session.exec(query.order_by(col(LogEntry.index).desc()).limit(1)).first()
    if last is None:
        return None
    index, data = last
    try:
        return index, parse_leaf(data).digests.get("config")
    except EntryError:
        return None


def _check_registration(session: Session, model: Model, report: FsckReport) -> None:
    """Check that the row matches its registration."""
    if (logged := registration(session, model)) is None:
        return
    index, digest = logged
    if digest != stored_digest(model):
        detail = "the configuration of a model is not the one that it was registered with"
        report.add("model", detail, index)


def _check_quarantine(session: Session, model: Model, report: FsckReport) -> None:
    """Check that the model is quarantined exactly if the log says so last.

    A model released by hand gets no certificates, but it would learn rows.
    """
    last = (
        select(LogEntry.event, LogEntry.index)
        .where(LogEntry.kind == MODEL_EVENT, LogEntry.ref == model.ref)
        .where(col(LogEntry.event).in_((QUARANTINED, RELEASED)))
        .order_by(col(LogEntry.index).desc())
    )
    event, index = session.exec(last.limit(1)).first() or (None, None)
    if (event == QUARANTINED) != (model.state == "quarantined"):
        report.add("model", "the tables and the log disagree on a quarantine", index)


def _check_versions(session: Session, model: Model, report: FsckReport) -> None:
    """Check that the nth `model.version` in the log is version n, with the logged digests."""
    logged = 0
    for index, leaf in _versions(session, str(model.ref)):
        logged += 1
        row = session.exec(
            select(ModelVersion).where(
                ModelVersion.model_id == model.id, ModelVersion.number == logged
            )
        ).first()
        if row is None:
            report.add("version", "the log has a version that the database lacks", index)
            continue
        columns = digests_of(row)
        logged_digests = {name: leaf.digests.get(name) for name in columns}
        if row.log_index != index or columns != logged_digests:
            report.add("version", "the tables and the log disagree on a version", index)
        else:
            _check_head(session, model, row, report)
        session.expunge(row)
    stored = select(func.count()).where(ModelVersion.model_id == model.id)
    number = model.current_version or 0
    if session.exec(stored).one() > logged or number > logged:
        report.add("version", "the database has a version that the log lacks")
    elif number < logged:
        report.add("version", "a model is not at its last version in the log")


def _check_head(session: Session, model: Model, row: ModelVersion, report: FsckReport) -> None:
    """Check that the published file is stored exactly until the version is withdrawn."""
    head = session.get(Artifact, row.head_id)
    if head is None or (head.kind, head.digest) != ("head", row.head_digest):
        report.add("head", "a version points at another file than the log has", row.log_index)
    elif row.withdrawn_at is None and head.wrapped_key is None:
        report.add("head", "the file of a version is not stored", row.log_index)
    elif row.withdrawn_at is not None and head.wrapped_key is not None:
        report.add("head", "a withdrawn version's file can still be opened", row.log_index)
    elif row.withdrawn_at is not None and row.number == model.current_version:
        report.add("head", "a model's present version is withdrawn", row.log_index)


def _check_records(session: Session, model: Model, report: FsckReport) -> None:
    current = session.exec(
        select(ModelVersion).where(
            ModelVersion.model_id == model.id, ModelVersion.number == model.current_version
        )
    ).first()
    if current is None:
        return
    root, count = folded_root(_stored(session, model, current, report))
    if (root, count) != (bytes(current.retained_root), current.retained_count):
        detail = (
            f"{count} records are stored, not the {current.retained_count} that the version "
            "retained"
        )
        report.add("record", detail, current.log_index)
        return
    if not _has_its_pages(session, current):
        detail = "the pages of a retained set are not those of its records"
        report.add("pages", detail, current.log_index)


def _has_its_pages(session: Session, current: ModelVersion) -> bool:
    """Return whether the stored pages are exactly those of the stored records.

    The records are read once, in leaf order, with one part of the tree in memory.
    """
    model_id, read = current.model_id, 0
    rows = retained_pages.leaves(session, model_id)
    following = next(rows, None)

    def has(part: Part) -> bool:
        nonlocal following, read
        if part.count <= retained_pages.CAP:
            own = []
            while following is not None and following[0].startswith(part.prefix):
                own.append(following)
                following = next(rows, None)
            return folded_root(own) == (part.hash, part.count)
        body = retained_pages.page(session, model_id, part.prefix)
        if body is None:
            return False
        parts = retained_pages.decode_page(part.prefix, body)
        read += 1
        return joined(part.prefix, parts) == part and all(map(has, parts))

    try:
        whole = has(Part(b"", current.retained_count, bytes(current.retained_root)))
    except RemovalError:
        return False
    stored = select(func.count()).where(RetainedPage.model_id == model_id)
    return whole and session.exec(stored).one() == read


def _stored(
    session: Session, model: Model, current: ModelVersion, report: FsckReport
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the valid tree leaves of a model's records, in ascending order; report others."""
    last = b""
    query = (
        select(Record.record, Record.salt, Record.commitment, Record.content)
        .where(Record.model_id == model.id)
        .order_by(col(Record.commitment))
        .execution_options(yield_per=FETCH)
    )
    for record, salt, stored, content in session.exec(query):
        commitment = bytes(stored)
        try:
            opened = record_commitment(bytes(salt), record) == commitment
        except RemovalError:
            opened = False
        if not opened:
            report.add("record", "a record is not the one it was stored as", current.log_index)
        if commitment == last:
            report.add("record", "a record is stored twice", current.log_index)
        elif len(commitment) == 32:
            yield commitment, bytes(content)
        last = commitment


def _check_claims(session: Session, report: FsckReport) -> None:
    """Check that records are claimed only by open requests of their own model."""
    query = (
        select(ErasureRequest.log_index)
        .join(Record, col(Record.claimed_by) == col(ErasureRequest.id))
        .where(
            col(ErasureRequest.state).in_(CLOSED)
            | (col(ErasureRequest.model_id) != col(Record.model_id))
        )
        .distinct()
        .order_by(col(ErasureRequest.log_index))
    )
    report.add_all(
        "record", "records wait for a request that will not erase them", session.exec(query)
    )


def _versions(session: Session, ref: str) -> Iterator[tuple[int, Leaf]]:
    """Yield (index, leaf) of a model's versions, with one page of entries in memory."""
    last = -1
    while True:
        query = (
            select(LogEntry.index, LogEntry.leaf)
            .where(LogEntry.kind == MODEL_EVENT, LogEntry.ref == ref)
            .where(LogEntry.event == VERSION, col(LogEntry.index) > last)
            .order_by(col(LogEntry.index))
            .limit(FETCH)
        )
        page = list(session.exec(query))
        if not page:
            return
        yield from valid_leaves(page)
        last = page[-1][0]
