"""Withdraw versions: destroy the files of all that the log does not record as withdrawn.

The rows of a model's versions only locate its files. Whoever can write the database could say
that a version was withdrawn long ago, or name another file as its head or state: what holds the
erased record would be kept, and its erasure certified.
"""

from collections.abc import Collection

from sqlmodel import Session, col, or_, select

from app.ledger.transaction import Transaction
from app.reconcile.inputs import unwithdrawn
from app.service.context import Services
from lethe.errors import LetheError
from models import Artifact, Model, ModelVersion
from models.database.session import chunks, read_by_id
from workers.jobs.draft import ShreddedArtifact
from workers.jobs.model.logged import OtherModelError
from workers.jobs.model.versions import numbered, shred

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
