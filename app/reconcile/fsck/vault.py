"""fsck of sealed data: each stored file opens, and erased records are still erased.

It needs the master key and reads one file at a time. The evidence names the erased records, and
each is looked up; neither record ids nor tags leave this module.
"""

from typing import Any

from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app.reconcile.audit_rows import REPORT
from app.reconcile.deleted import deleted_in
from app.reconcile.findings import FsckReport
from app.reconcile.fsck.run import sealed_rows
from app.reconcile.fsck.state import Verified
from app.reconcile.inputs import HELD_OUT_KIND as HELD_OUT
from app.reconcile.inputs import is_of_upload
from app.reconcile.people import check_people
from app.reconcile.retention import ended_refs
from app.vault.artifacts import GRACE, ArtifactStore, is_file_name
from app.vault.features import FeatureVault
from app.vault.master import RootSecret, open_tombstone_key, record_tag
from lethe.certificates.evidence import SCORES, parse_evidence
from lethe.errors import LetheError
from lethe.log.entries import EntryError, parse_leaf
from models import (
    Artifact,
    Certificate,
    Contribution,
    ErasureRequest,
    Job,
    LogEntry,
    Model,
    ModelVersion,
    Record,
    Release,
    Round,
    RoundMember,
    SiloTask,
    Tombstone,
    Verification,
)
from models.database.session import reading

FETCH = 500  # rows, or records of an evidence file, per query
FILE = "a stored file is missing or was altered: restore the data directory from its backup"
ELSEWHERE = "a row of artifacts names no file of their directory: nothing of Lethe's wrote it"
UNNAMED = "a stored file is needed by no row: a row was changed to keep what may be erased data"
NO_STONE = "an erased record has no tombstone: it could come back unnoticed"
STORED = "an erased record is stored again"
OTHER = "a contribution that waits has another upload or model than the log received"
OWNER = (
    "stored rows are not those of the client and subject that they are listed for: restore the "
    "table subjects from a backup"
)


def fsck_vault(
    engine: Engine,
    artifacts: ArtifactStore,
    root_secret: RootSecret,
    report: FsckReport,
    held: Verified | None = None,
) -> None:
    """Add problems with files, tombstones, contributions and identities to a report of `fsck`.

    held: What an earlier call verified. Older files, and the evidence of certificates in its
    log, are not read again.
    """
    report.files = True
    if held is not None and not held.files:
        held = None
    with Session(reading(engine)) as session:
        with sealed_rows(report, "stored files"):
            _check_files(engine, session, artifacts, report, held)
            _check_named(session, report)
        with sealed_rows(report, "stored rows"):
            for _ in FeatureVault(root_secret).foreign(session):
                report.add("file", OWNER)
        with sealed_rows(report, "erased records"):
            first = 0 if held is None else held.size
            _check_erased(session, artifacts, root_secret, report, first)
        with sealed_rows(report, "contributions"):
            _check_contributions(session, root_secret, report)
        with sealed_rows(report, "identities"):
            check_people(session, root_secret, report)


def _check_files(
    engine: Engine,
    session: Session,
    artifacts: ArtifactStore,
    report: FsckReport,
    held: Verified | None,
) -> None:
    named = select(Artifact.id).execution_options(yield_per=FETCH)
    for artifact_id in session.exec(named):
        if not is_file_name(artifact_id):
            report.add("file", ELSEWHERE)
    query = select(Artifact.id).where(col(Artifact.wrapped_key).is_not(None))
    if held is not None:  # GRACE: a transaction may have been open at that time
        query = query.where(col(Artifact.created_at) >= held.at - GRACE)
    for artifact_id in session.exec(query.execution_options(yield_per=FETCH)):
        if not is_file_name(artifact_id):
            continue  # reported above
        try:
            artifacts.get(session, artifact_id)
        except LetheError:
            with Session(reading(engine)) as now:  # the service may have shredded it meanwhile
                row = now.get(Artifact, artifact_id)
            if row is not None and row.wrapped_key is not None:
                report.add("file", FILE)


def naming() -> dict[str, list[Any]]:
    """Return, by kind, which rows need a stored file of it, as queries of their columns.

    A job needs its files until it ends; a version its state until the next one.
    """
    waiting = col(Job.done_at).is_(None)
    is_current = (col(Model.id) == ModelVersion.model_id) & (
        col(Model.current_version) == ModelVersion.number
    )
    messages = ("advertise_id", "share_id", "masked_id", "confirm_id", "reveal_id")
    return {
        "head": [select(ModelVersion.head_id)],
        "state": [select(ModelVersion.state_id).join(Model, is_current)],
        "upload": [select(Contribution.upload_id).where(Contribution.state == "received")],
        "release": [select(Release.upload_id)],
        "evidence": [select(Verification.evidence_id)],
        "draft": [select(Job.draft_id).where(waiting)],
        "before": [select(Job.before_id).where(waiting)],
        "checkpoint": [select(Job.checkpoint_id).where(waiting)],
        "round": [select(Round.transcript_id)],
        "counts": [select(Round.counts_id)],
        "round-message": [select(getattr(RoundMember, one)) for one in messages],
        "silo-task": [select(SiloTask.task_id)],
        "silo-answer": [select(SiloTask.answer_id)],
    }


# Named by digest, in the log alone. `_check_files` opens them as these kinds.
LOGGED_KINDS = (HELD_OUT, REPORT, SCORES)


def _check_named(session: Session, report: FsckReport) -> None:
    """Check that some row needs each stored file.

    File and row are written, and destroyed, in one transaction.
    """
    live = select(Artifact.id).where(col(Artifact.wrapped_key).is_not(None))
    rows = naming()
    found = session.exec(live.where(col(Artifact.kind).not_in([*rows, *LOGGED_KINDS]))).all()
    for kind, queries in rows.items():
        unnamed = live.where(Artifact.kind == kind)
        for query in queries:
            (column,) = query.selected_columns
            unnamed = unnamed.where(col(Artifact.id).not_in(query.where(column.is_not(None))))
        found = [*found, *session.exec(unnamed)]
    for _ in found:
        report.add("file", UNNAMED)


def _check_erased(
    session: Session,
    artifacts: ArtifactStore,
    root_secret: RootSecret,
    report: FsckReport,
    first: int,
) -> None:
    query = (
        select(Certificate.log_index, Verification.evidence_id, ErasureRequest)
        .join(Verification, col(Verification.request_id) == col(Certificate.request_id))
        .join(ErasureRequest, col(ErasureRequest.id) == col(Certificate.request_id))
        .where(col(Certificate.log_index) >= first)
        .order_by(col(Certificate.log_index))
        .execution_options(yield_per=FETCH)
    )
    keys: dict[int, bytes] = {}
    gone, destroyed = deleted_in(session), ended_refs(session, "evidence")
    for index, evidence_id, request in session.exec(query):
        # The evidence is destroyed at the end of retention or earlier.
        if not request.event_key or request.ref in destroyed:
            continue
        model_id = request.model_id
        try:
            model = session.get_one(Model, model_id)
            if model.ref in gone:  # its tombstones and their key are deleted too
                continue
            if model_id not in keys:
                keys[model_id] = open_tombstone_key(root_secret, model)
            evidence = parse_evidence(artifacts.get(session, evidence_id))
        except LetheError:
            report.add("file", "the evidence of a certificate cannot be opened", index)
            continue
        records = [one.record for one in evidence.removal.records]
        for start in range(0, len(records), FETCH):
            chunk = records[start : start + FETCH]
            for problem in _problems(session, model_id, keys[model_id], chunk):
                report.add("tombstone", problem, index)


def _problems(session: Session, model_id: int, key: bytes, records: list[str]) -> set[str]:
    """Return the problems of some erased records; a record added back has no tombstone."""
    tags = {record_tag(key, record): record for record in records}
    stones = select(Tombstone.tag).where(
        Tombstone.model_id == model_id, col(Tombstone.tag).in_(list(tags))
    )
    buried = {tags[bytes(tag)] for tag in session.exec(stones)}
    query = select(Record.record).where(
        Record.model_id == model_id, col(Record.record).in_(records)
    )
    stored = set(session.exec(query))
    found = set()
    if stored & buried:
        found.add(STORED)
    if set(records) - stored - buried:
        found.add(NO_STONE)
    return found


def _check_contributions(session: Session, root_secret: RootSecret, report: FsckReport) -> None:
    """Compare each pending contribution with the upload in its log entry.

    A worker refuses any other upload; fsck reports it earlier. Learned contributions are in the
    log by their rows; `_check_files` reads the files.
    """
    query = (
        select(Contribution, Model, Artifact.digest, LogEntry.leaf)
        .join(Model, col(Model.id) == col(Contribution.model_id))
        .join(Artifact, col(Artifact.id) == col(Contribution.upload_id))
        .join(LogEntry, col(LogEntry.index) == col(Contribution.log_index), isouter=True)
        .where(Contribution.state == "received")
        .order_by(col(Contribution.log_index))
        .execution_options(yield_per=FETCH)
    )
    for contribution, model, digest, leaf in session.exec(query):
        if not _is_received(contribution, model, digest, leaf, root_secret):
            report.add("contribution", OTHER, contribution.log_index)


def _is_received(
    contribution: Contribution,
    model: Model,
    digest: str,
    leaf: bytes | None,
    root_secret: RootSecret,
) -> bool:
    if leaf is None:
        return False
    try:
        return is_of_upload(parse_leaf(leaf), root_secret, model, contribution, digest)
    except EntryError:  # reported by `check_tree`
        return False
