"""A model's versions: load the current state and publish the next.

A version is withdrawn by destroying its files, and those of all before it that the log does not
record as withdrawn. The rows of a model's versions only locate its files. Whoever can write the
database could say that a version was withdrawn long ago, or name another file as its head or
state: what holds the erased record would be kept, and its erasure certified.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, update
from sqlmodel import Session, col, exists, or_, select

from app import retained_pages
from app.ledger.journal import digest_of, record_model_event
from app.ledger.transaction import Transaction
from app.reconcile.inputs import unwithdrawn
from app.retained_pages import RetainedSet
from app.service.context import Services
from lethe.errors import LetheError
from models import Artifact, Model, ModelVersion, Record, Subject
from models.database import bulk
from models.database.session import chunks, read_by_id, rows_in
from models.database.types import tag_of
from workers.errors import RefusedError
from workers.leases.lease import Lease
from workers.updates.draft import ShreddedArtifact
from workers.updates.update import Encoded, FreshRecords, Owner, split

if TYPE_CHECKING:  # keeps numpy out of a worker's start
    import numpy as np
    from numpy.typing import NDArray

REPEATED = "model.repeated"


class OtherModelError(RefusedError):
    """A model's row is not as registered. Never blamed on the computation of its job."""


def current(session: Session, model: Model) -> ModelVersion | None:
    """Return the row of a model's current version."""
    if model.current_version is None:
        return None
    assert model.id is not None
    return numbered(session, model.id, model.current_version)


def numbered(session: Session, model_id: int, number: int) -> ModelVersion:
    """Return the row of a model's version by its number."""
    return session.exec(
        select(ModelVersion).where(
            ModelVersion.model_id == model_id, ModelVersion.number == number
        )
    ).one()


def commitments_of(session: Session, model_id: int, records: Collection[str]) -> list[bytes]:
    """Return the sorted commitments of the given retained records of a model."""
    query = select(Record.commitment).where(Record.model_id == model_id)
    return sorted(map(bytes, rows_in(session, query, col(Record.record), sorted(records))))


def salts_of(session: Session, model_id: int) -> dict[str, bytes]:
    """Return the salt of each record of a model."""
    query = select(Record.record, Record.salt).where(Record.model_id == model_id)
    return {record: bytes(salt) for record, salt in session.exec(query)}


def add_records(
    session: Session,
    model_id: int,
    fresh: FreshRecords,
    subjects: "NDArray[np.int64]",
    *,
    keep_order: bool,
) -> None:
    """Add records to the training set, each with its subject's id, salt and leaf.

    subjects (n,): of the records, in their order. keep_order: insert the table's rows in that
    order, because method audits draw by it. Otherwise they are inserted in the order of their
    commitments: the index then grows only at its end, and the insertion takes a fifth less
    time.
    """
    import numpy as np

    session.flush()
    order = np.arange(len(fresh)) if keep_order else fresh.order

    def blocks() -> Iterator[list[list[Any]]]:
        for start in range(0, len(order), bulk.BLOCK):
            own = order[start : start + bulk.BLOCK]
            yield [
                [model_id] * len(own),
                subjects[own].tolist(),
                [fresh.records[place] for place in own.tolist()],
                split(fresh.salts[own]),
                split(fresh.commitments[own]),
                split(fresh.contents[own]),
            ]

    names = ("model_id", "subject_id", "record", "salt", "commitment", "content")
    bulk.insert_blocks(session.connection(), Record, names, blocks())


def remove_records(session: Session, model_id: int, records: list[str]) -> int:
    """Remove records from the training set, whichever request claimed them; return how many.

    The names of a client or subject without remaining records are destroyed too.
    """
    session.flush()  # otherwise expiring below would lose unflushed changes
    removed = 0
    owners: set[int] = set()
    for chunk in chunks(records):
        leaving = [col(Record.model_id) == model_id, col(Record.record).in_(chunk)]
        owners.update(session.exec(select(Record.subject_id).where(*leaving).distinct()))
        removed += session.connection().execute(delete(Record).where(*leaving)).rowcount
    forget_names(session, owners)
    session.expire_all()
    return removed


def append(
    services: Services,
    tx: Transaction,
    model: Model,
    lease: Lease,
    encoded: Encoded,
    retained: RetainedSet,
    links: Sequence[bytes] = (),
    added: bytes | None = None,
    figure: dict[str, Any] | None = None,
) -> ModelVersion:
    """Append a state as the model's next version, over the retained set that it was made from.

    `links` are the roots between those of the version before and `retained`, if several
    requests were executed together: the log holds the whole chain, of which each certificate
    names a part. added: the root of a contribution that made the version. figure: its
    measurement on held-out rows. The event is in the log before any verifier draws a seed.
    """
    assert model.id is not None
    session = tx.session
    head = services.artifacts.put(session, "head", encoded.head)
    state = services.artifacts.put(session, "state", encoded.state)
    number = (model.current_version or 0) + 1
    index = record_model_event(
        tx,
        model.ref,
        "model.version",
        {
            "head": encoded.head_digest,
            "statistics": encoded.statistics,
            # Roots of salted commitments and salted digests, which reveal nothing about a
            # person.
            "retained": retained.root.hex(),
            **({"added": added.hex()} if added is not None else {}),
            **({"held-out": digest_of(figure)} if figure is not None else {}),
            **({"start": encoded.start} if encoded.start is not None else {}),
            **{f"retained-{number}": root.hex() for number, root in enumerate(links, 1)},
        },
    )
    version = ModelVersion(
        model_id=model.id,
        number=number,
        job_id=lease.job_id,
        step=lease.step,
        head_id=head.id,
        state_id=state.id,
        head_digest=encoded.head_digest,
        statistics_digest=encoded.statistics,
        retained_root=retained.root,
        retained_count=retained.count,
        held_out=figure,
        log_index=index,
        created_at=tx.now,
    )
    session.add(version)
    retained_pages.write(session, model.id, retained)
    model.current_version = number
    model.state = "ready"
    session.flush()
    return version


def record_repeated(tx: Transaction, model: Model, version: ModelVersion) -> None:
    """Log that the training of a version was repeated with an identical result."""
    digests = {"head": version.head_digest, "statistics": version.statistics_digest}
    record_model_event(tx, model.ref, REPEATED, digests)


def shred(
    services: Services, session: Session, artifact_id: str, *kinds: str
) -> ShreddedArtifact | None:
    """Destroy an artifact's key; return None if it was already destroyed, or is kept.

    kinds: as in `ArtifactStore.shred`.
    """
    if session.get_one(Artifact, artifact_id).wrapped_key is None:
        return None
    digest = services.artifacts.shred(session, artifact_id, *kinds)
    return None if digest is None else ShreddedArtifact(artifact_id, digest)


def find_subject(session: Session, model_id: int, owner: Owner) -> Subject | None:
    """Return the row of (client, subject), even if its names were destroyed."""
    query = select(Subject).where(
        Subject.model_id == model_id,
        Subject.client_tag == owner[0],
        Subject.subject_tag == owner[1],
    )
    return session.exec(query).first()


def named_subjects(session: Session, model_id: int, owners: Sequence[Owner]) -> list[Subject]:
    """Return the row of each (client, subject), created or with its names restored.

    With few statements: an upload may name an owner in each row, and its rows are stored while
    nobody else can write.
    """
    dialect = session.get_bind().dialect
    tags = [
        (tag_of(dialect, "client", client), tag_of(dialect, "subject", subject))
        for client, subject in owners
    ]
    stored = select(Subject).where(
        Subject.model_id == model_id,
        col(Subject.client_tag).in_({client for client, _ in tags}),
        col(Subject.subject_tag).in_({subject for _, subject in tags}),
    )
    known = {(one.client_tag, one.subject_tag): one for one in session.exec(stored)}
    found = []
    for owner, (client, subject) in zip(owners, tags, strict=True):
        row = known.get((client, subject))
        if row is None:
            row = Subject(model_id=model_id, client_tag=client, subject_tag=subject)
            session.add(row)
        if row.client is None:
            row.client, row.subject = owner
        found.append(row)
    session.flush()
    return found


def forget_names(session: Session, subjects: Collection[int]) -> None:
    """Destroy the names of those among `subjects` that have no records left."""
    for chunk in chunks(sorted(subjects)):
        holds = exists().where(col(Record.subject_id) == col(Subject.id))
        statement = update(Subject).where(col(Subject.id).in_(chunk), ~holds)
        session.connection().execute(statement.values(client=None, subject=None))


OTHER_FILES = (
    "nothing was published: a version's file or state is not the one that was published with "
    "it, so it could not be destroyed; restore the tables model_versions and artifacts from a "
    "backup"
)


def withdraw_earlier(
    services: Services,
    tx: Transaction,
    model: Model,
    keep: ModelVersion,
    *,
    certified: bool = True,
) -> list[ShreddedArtifact]:
    """Shred heads and states of all versions before `keep`; return those shredded now.

    certified: whether certificates will list them. Otherwise, versions and files may be missing
    or exchanged: a model that is mended may be of a restored database.

    Raises OtherModelError if a row does not name the file that the log records as kept.
    """
    session = tx.session
    logged = unwithdrawn(services.ledger, model, keep.number)
    earlier = select(ModelVersion).where(
        ModelVersion.model_id == model.id,
        col(ModelVersion.number) < keep.number,
        or_(
            col(ModelVersion.withdrawn_at).is_(None),
            col(ModelVersion.number) >= min(logged, default=keep.number),
        ),
    )
    found = session.exec(earlier).all()
    ids = [one for version in found for one in (version.head_id, version.state_id)]
    read_by_id(session, Artifact, ids)
    if certified:
        rows = {version.number: version for version in found}
        if not logged.keys() <= rows.keys():
            raise OtherModelError(OTHER_FILES)
        for number, leaf in logged.items():
            _require_head(services, session, rows[number], leaf.digests["head"])
        _require_unshared(session, [rows[number] for number in logged])
        # A contribution destroyed the states before it.
        _require_state(services, session, rows[max(logged)])
    for version in found:
        version.withdrawn_at = version.withdrawn_at or tx.now
    shredded = (shred(services, session, artifact_id) for artifact_id in ids)
    return [one for one in shredded if one is not None]


def destroy_state(services: Services, session: Session, model_id: int, number: int) -> None:
    """Shred the state of a version that a contribution replaces.

    The head is kept until an erasure; the state of a past version has no use. Raises
    OtherModelError if the version's row names something else.
    """
    version = numbered(session, model_id, number)
    _require_unshared(session, [version])
    _require_state(services, session, version)
    shred(services, session, version.state_id)


def _require_head(
    services: Services, session: Session, version: ModelVersion, digest: str
) -> None:
    """Check that a version's file is still stored and is the logged one.

    Its key opens only beside the digest of its content.
    """
    head = session.get(Artifact, version.head_id)
    try:
        if head is None or head.digest != digest:
            raise OtherModelError(OTHER_FILES)
        services.artifacts.require_key(session, head.id)
    except LetheError:
        raise OtherModelError(OTHER_FILES) from None


def _require_state(services: Services, session: Session, version: ModelVersion) -> None:
    """Check that a version names a file that was sealed as a state and still opens.

    The log has no digest of a state: another model's state is not told from its own, unless a
    row still names it.
    """
    state = session.get(Artifact, version.state_id)
    try:
        if state is None or state.kind != "state":
            raise OtherModelError(OTHER_FILES)
        services.artifacts.opened(session, state.id).close()
    except LetheError:
        raise OtherModelError(OTHER_FILES) from None


def _require_unshared(session: Session, versions: Collection[ModelVersion]) -> None:
    """Check that no other version, of any model, names one of these versions' files."""
    ids = {one for version in versions for one in (version.head_id, version.state_id)}
    named = [
        one
        for chunk in chunks(sorted(ids))
        for one in session.exec(
            select(ModelVersion.id).where(
                col(ModelVersion.head_id).in_(chunk) | col(ModelVersion.state_id).in_(chunk)
            )
        )
    ]
    if len(ids) < 2 * len(versions) or set(named) != {version.id for version in versions}:
        raise OtherModelError(OTHER_FILES)
