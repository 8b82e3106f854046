"""Replays, in a restored database, the erasures made after its backup.

The erasure journal beside the keys lists them. Erased records are removed and get tombstones,
destroyed keys are destroyed again, and a model that loses records is quarantined. A ciphertext
that contains an erased row is destroyed completely, including retained rows. These lost rows
are counted and may be contributed again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import bindparam, delete, func, insert
from sqlalchemy.engine import Engine
from sqlmodel import Session, col, select

from app.ledger.journal import record_model_event
from app.ledger.sequencer import Ledger
from app.ledger.transaction import Transaction
from app.reconcile.deleted import deleted_in
from app.reconcile.inputs import HELD_OUT_EVENT, HELD_OUT_KIND
from app.reconcile.journal import ENDS, committed, of_models, stored_erased
from app.reconcile.judgement import EXECUTED
from app.reconcile.model_events import CLOSED
from app.reconcile.people import hand_over, rows_if_logged
from app.service.desk.people import keep_sums
from app.service.queue import PARKED
from app.vault.audit_numbers import destroy_numbers
from app.vault.journal import ErasureJournal, JournalError, Line
from app.vault.master import RootSecret, open_tombstone_key, record_tag
from app.vault.wipe import DELETED, is_wiped, wipe
from lethe.log.entries import ERASURE_EVENT, HASHEDREKORD, MODEL_EVENT, Leaf, parse_leaf
from models import (
    Artifact,
    ErasureRequest,
    FeatureBlock,
    Job,
    LogEntry,
    Model,
    ModelVersion,
    Person,
    Record,
    Subject,
    Tombstone,
)
from models.database.session import chunks, reading, rows_in
from models.database.types import clock
from models.person import ERASED

WHY = "restored from a backup: what was erased after it was erased again, with what held it"
ENDED = "erased after the backup that was restored: the log and its certificate stand"


@dataclass(slots=True)
class Reapplied:
    """The results of a replay. `lost`: retained records in the block of an erased row.

    `people`: models whose identities matched the log before; they are logged again if changed.
    `requests`: public refs of requests some of whose openings the database lacks.
    `certificates`: number of logged certificates without a row. `deleted`: models that were
    deleted again.
    """

    records: int = 0
    lost: int = 0
    keys: int = 0
    models: list[str] = field(default_factory=list)
    people: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    certificates: int = 0
    deleted: list[str] = field(default_factory=list)


def reapply(
    session: Session,
    root_secret: RootSecret,
    journal: ErasureJournal,
    leaves: Sequence[Leaf] = (),
    *,
    complete: bool = True,
) -> Reapplied:
    """Replay the journal's erasures in the caller's transaction. Idempotent.

    A line counts if the database's log, with `leaves`, has its requests as executed. If that
    log is not `complete`, a line whose requests may have been executed since counts too. Raises
    JournalError: The journal is missing or damaged.
    """
    erased, done = committed(session, journal.read(), leaves, complete=complete), Reapplied()
    erased.deleted |= deleted_in(session, leaves)
    done.people = [
        model.ref
        for model in session.exec(select(Model)).all()
        if model.ref not in erased.deleted and rows_if_logged(session, root_secret, model)
    ]
    for model, tags in of_models(session, erased):
        rows = [row for row, _ in stored_erased(session, root_secret, model, tags)]
        subjects = {row.subject_id for row in rows}
        done.records += len(rows)
        key = open_tombstone_key(root_secret, model)
        owners = {record_tag(key, row.record): row.subject_id for row in rows}
        names = {row.record: record_tag(key, row.record) for row in rows}
        _forget_people(session, model, names)
        _remove(session, [row.id for row in rows])
        _keep_tags(session, model, tags, owners)
        if subjects:
            done.lost += _clear(session, subjects)
            _quarantine(model, done)
            assert model.id is not None
            destroy_numbers(session, model.id)  # whose they are, only a worker computes
    sealed = select(Artifact).where(col(Artifact.wrapped_key).is_not(None))
    for artifact in session.exec(sealed).all():
        assert artifact.wrapped_key is not None
        if journal.key_tag(artifact.wrapped_key) in erased.keys:
            artifact.wrapped_key, artifact.shredded_at = None, clock(session)
            done.keys += 1
            _withdraw(session, artifact.id, done)
    keyed = select(Subject).where(col(Subject.wrapped_key).is_not(None))
    for subject in session.exec(keyed).all():
        assert subject.wrapped_key is not None
        assert subject.id is not None
        if journal.key_tag(subject.wrapped_key) in erased.keys:
            done.lost += _clear(session, {subject.id})
            done.keys += 1
            _quarantine(session.get_one(Model, subject.model_id), done)
    _destroy_held_out(session, leaves, done)
    _end(session, erased.requests, done, ("execute", PARKED))
    _delete(session, erased.deleted, done)
    session.flush()
    for model in session.exec(select(Model).where(col(Model.ref).in_(done.people))).all():
        hand_over(session, root_secret, model)
    return done


def reapply_all(
    session: Session,
    root_secret: RootSecret,
    journal: ErasureJournal,
    leaves: Sequence[Leaf],
    *,
    incomplete: bool = False,
) -> Reapplied:
    """As `reapply`, for a database whose lost log entries, `leaves`, are being restored.

    Requests that these leaves have as executed or closed are not executed again. With
    `incomplete`, the journal may lack executed requests; then every model is quarantined.
    Raises JournalError: the journal lacks requests that these leaves have as executed.
    """
    executed = {leaf.ref for leaf in leaves if leaf.event == EXECUTED and leaf.ref}
    unknown = executed - journal.read().requests
    if unknown and not incomplete:
        raise JournalError(
            f"the erasure journal lacks {len(unknown)} requests that the log has as executed: "
            "restore the newest keys directory; without one, --journal-incomplete quarantines "
            "every model"
        )
    done = reapply(session, root_secret, journal, leaves)
    # The table is older than the log, so the identities cannot be compared.
    models = session.exec(select(Model).where(Model.state != DELETED)).all()
    done.people = [model.ref for model in models]
    for model in models:
        hand_over(session, root_secret, model, leaves)
    if unknown:
        for model in models:
            _quarantine(model, done)
    ended = {leaf.ref for leaf in leaves if leaf.ref and leaf.event in (EXECUTED, *ENDS)}
    _end(session, ended, done, None)
    lost = {leaf.ref for leaf in leaves if leaf.kind == ERASURE_EVENT and leaf.ref}
    done.requests = sorted(lost | set(done.requests))
    done.certificates = sum(leaf.kind == HASHEDREKORD for leaf in leaves)
    session.flush()
    return done


def log_quarantines(ledger: Ledger, models: Sequence[str]) -> None:
    """Log the quarantine of these models."""

    def effect(tx: Transaction) -> None:
        for ref in models:
            record_model_event(tx, ref, "model.quarantined", {})

    if models:
        ledger.transact(effect)


def log_people(ledger: Ledger, root_secret: RootSecret, models: Sequence[str]) -> None:
    """Log the identities of models whose rows a restore changed.

    If a restore was interrupted before this, the next lookup of a person does it.
    """
    for ref in models:
        keep_sums(ledger, root_secret, ref)


def unlogged(engine: Engine) -> list[str]:
    """Return the models quarantined by a restore whose quarantine is not in the log."""
    with Session(reading(engine)) as session:
        found = []
        query = select(Model).where(Model.state == "quarantined", Model.failure == WHY)
        for model in session.exec(query).all():
            last = select(func.max(LogEntry.index)).where(LogEntry.ref == model.ref)
            quarantined = session.exec(last.where(LogEntry.event == "model.quarantined")).one()
            version = session.exec(last.where(LogEntry.event == "model.version")).one()
            if quarantined is None or quarantined < (version or 0):
                found.append(model.ref)
        return found


def _remove(session: Session, ids: list[int | None]) -> None:
    for chunk in chunks(ids):
        session.connection().execute(delete(Record).where(col(Record.id).in_(chunk)))


def _forget_people(session: Session, model: Model, tags: Mapping[str, bytes]) -> None:
    """Unlink identities from erased records; their tags stay, and those of the tombstones."""
    table = Person.__table__  # type: ignore[attr-defined]
    own = table.c.model_id == model.id, table.c.record == bindparam("name")
    gone = table.update().where(*own).values(state=ERASED, record=bindparam("link"))
    if tags:
        session.connection().execute(
            gone, [{"name": name, "link": tag.hex()} for name, tag in tags.items()]
        )


def _keep_tags(
    session: Session, model: Model, tags: dict[bytes, Line], owners: dict[bytes, int]
) -> None:
    held = set(session.exec(select(Tombstone.tag).where(Tombstone.model_id == model.id)))
    refs = {ref: None for line in tags.values() for ref in line.requests}
    query = select(ErasureRequest.ref, ErasureRequest.id)
    known = dict(rows_in(session, query, col(ErasureRequest.ref), list(refs)))
    stones = [
        {
            "model_id": model.id,
            "tag": tag,
            "subject_id": owners.get(tag),
            # None if the request also came after the backup.
            "request_id": next((known[ref] for ref in line.requests if ref in known), None),
        }
        for tag, line in tags.items()
        if tag not in held
    ]
    if stones:
        session.connection().execute(insert(Tombstone), stones)


def _clear(session: Session, subjects: set[int]) -> int:
    """Destroy these subjects' blocks and their remaining records; return the number lost."""
    lost = 0
    for chunk in chunks(sorted(subjects)):
        session.connection().execute(
            delete(FeatureBlock).where(col(FeatureBlock.subject_id).in_(chunk))
        )
        lost_records = select(Record.record).where(col(Record.subject_id).in_(chunk))
        for model_id in set(
            session.exec(select(Subject.model_id).where(col(Subject.id).in_(chunk)))
        ):
            own = col(Person.model_id) == model_id
            for names in chunks(list(session.exec(lost_records))):
                identities = delete(Person).where(own, col(Person.record).in_(names))
                session.connection().execute(identities)
        rest = delete(Record).where(col(Record.subject_id).in_(chunk))
        lost += session.connection().execute(rest).rowcount
        now = clock(session)
        for subject in session.exec(select(Subject).where(col(Subject.id).in_(chunk))).all():
            subject.wrapped_key, subject.shredded_at = None, now
            subject.client = subject.subject = None
    session.flush()
    return lost


def _destroy_held_out(session: Session, leaves: Sequence[Leaf], done: Reapplied) -> None:
    """Destroy the held-out files that later ones replaced, by the stored entries and `leaves`.

    A case removes a person's held-out rows without a request, so the journal has no line.
    """
    query = select(LogEntry.leaf).where(
        LogEntry.kind == MODEL_EVENT, LogEntry.event == HELD_OUT_EVENT
    )
    stored = [
        parse_leaf(bytes(leaf)) for leaf in session.exec(query.order_by(col(LogEntry.index)))
    ]
    replaced, last = set[str](), dict[str | None, str]()
    for leaf in [*stored, *(one for one in leaves if one.event == HELD_OUT_EVENT)]:
        replaced.add(last.get(leaf.ref, ""))
        last[leaf.ref] = leaf.digests.get("rows", "")
    live = select(Artifact).where(
        Artifact.kind == HELD_OUT_KIND, col(Artifact.wrapped_key).is_not(None)
    )
    digests = sorted(replaced - set(last.values()))
    for artifact in rows_in(session, live, col(Artifact.digest), digests):
        artifact.wrapped_key, artifact.shredded_at = None, clock(session)
        done.keys += 1


def _quarantine(model: Model, done: Reapplied) -> None:
    model.state, model.failure = "quarantined", WHY
    if model.ref not in done.models:
        done.models.append(model.ref)


def _delete(session: Session, refs: Collection[str], done: Reapplied) -> None:
    """Delete what is left of these models, after ending their open requests."""
    for chunk in chunks(sorted(refs)):
        for model in session.exec(select(Model).where(col(Model.ref).in_(chunk))).all():
            if is_wiped(session, model):
                continue
            open_requests = select(ErasureRequest.ref).where(
                ErasureRequest.model_id == model.id, col(ErasureRequest.state).not_in(CLOSED)
            )
            _end(session, set(session.exec(open_requests)), done, None)
            wipe(session, model)
            done.deleted.append(model.ref)
            if model.ref in done.models:
                done.models.remove(model.ref)


def _withdraw(session: Session, artifact_id: str, done: Reapplied) -> None:
    query = select(ModelVersion).where(
        (ModelVersion.head_id == artifact_id) | (ModelVersion.state_id == artifact_id)
    )
    for version in session.exec(query).all():
        version.withdrawn_at = version.withdrawn_at or clock(session)
        model = session.get_one(Model, version.model_id)
        if model.current_version == version.number:
            _quarantine(model, done)


def _end(
    session: Session, refs: Collection[str], done: Reapplied, stages: tuple[str, ...] | None
) -> None:
    """Close those of these requests that are still open and have a job in these stages."""
    for chunk in chunks(sorted(refs)):
        query = select(ErasureRequest).where(col(ErasureRequest.ref).in_(chunk))
        found = {request.ref: request for request in session.exec(query).all()}
        done.requests += [ref for ref in chunk if ref not in found]
        for ref, request in found.items():
            job = session.exec(select(Job).where(Job.request_id == request.id)).first()
            if request.state in CLOSED or job is None:
                continue
            if stages is not None and job.stage not in stages:
                continue
            done.requests.append(ref)
            request.state, request.reason = "failed", ENDED
            job.stage, job.done_at, job.lease_until = "done", clock(session), None
            job.lease_token += 1
            _destroy_inputs(session, job)


def _destroy_inputs(session: Session, job: Job) -> None:
    """Destroy what an ended job would have continued from, except what other jobs share."""
    for artifact_id in (job.draft_id, job.checkpoint_id, job.before_id):
        others = select(Job.id).where(
            Job.before_id == artifact_id, Job.id != job.id, col(Job.done_at).is_(None)
        )
        if artifact_id is None or session.exec(others).first() is not None:
            continue
        artifact = session.get_one(Artifact, artifact_id)
        artifact.wrapped_key = None
        artifact.shredded_at = artifact.shredded_at or clock(session)
