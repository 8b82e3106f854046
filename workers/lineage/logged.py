"""A model's registration and versions as the log has them, to compare the tables with.

A person with write access to the database can change the tables, but not the log.
"""

from dataclasses import dataclass
from typing import BinaryIO

from sqlmodel import Session

from app.ledger.journal import stored_digest
from app.ledger.sequencer import Ledger
from app.problems import UnloggedVersionError
from app.reconcile import inputs
from app.reconcile.inputs import VERSION, received_upload, versions_of
from app.reconcile.model_events import model_events
from app.service.context import Services
from app.vault.errors import NotStoredError, ShreddedError
from app.vault.master import ADD_BACK, UPLOAD
from lethe.log.entries import Leaf
from models import Contribution, Model, ModelVersion
from workers.errors import RefusedError
from workers.lineage import versions
from workers.lineage.versions import OtherModelError

CHANGED = (
    "nothing was published: the stored configuration of the model differs from the one that "
    "was registered in the log; restore its row of the table models from a backup"
)
RENAMED = (
    "nothing was published: the model's current version is not the newest of its reference in "
    "the log; restore its rows of the tables models and model_versions from a backup"
)
EXCHANGED = (
    "nothing was published: the model had another reference when its version was made than "
    "now; restore its row of the table models from a backup"
)
OTHER_ROWS = (
    "nothing was learned: the rows or sums that are stored of the model are not those of its "
    "version; restore its rows of feature_blocks, subjects, records and model_versions from a "
    "backup"
)
OTHER_SCOPE = (
    "nothing was erased: the stored scope or method of the request is not the one that the log "
    "has as received; restore its row of the table erasure_requests from a backup"
)


class OtherRequestError(RefusedError):
    """A request's row differs from what the log received. It is not executed."""


@dataclass(frozen=True, slots=True)
class LoggedRegistration:
    """policy: the logged digest of the policy, empty if the model is not as registered.

    noise: the logged commitment to its noise key, or empty likewise; config: the digests of the
    logged registration and of the model's current row.
    """

    unchanged: bool
    policy: str
    noise: str
    config: tuple[str, str]


def registered(ledger: Ledger, model: Model) -> LoggedRegistration:
    """Compare a model's row with the last registration before its first version."""
    found: dict[str, str] = {}
    for _, leaf in model_events(ledger, model.ref):
        if leaf.event == VERSION:
            break
        if leaf.event == "model.registered":
            found = dict(leaf.digests)
    config = found.get("config", ""), stored_digest(model)
    unchanged = config[0] == config[1]
    known = found if unchanged else {}
    return LoggedRegistration(
        unchanged, known.get("policy", ""), known.get("noise", ""), config
    )


def as_registered(
    ledger: Ledger, session: Session, model_id: int, *, mends: bool = False
) -> Model:
    """Return a model's row, once the log agrees with everything a version is computed by.

    The publisher computes from this object and does not reread the row, which may have been
    changed after the comparison. The publishing transaction compares it once more.

    mends: the model may be at an older version than the log, as that of a restored database. A
    mend compares the rows with the log's last version.

    Raises:
        OtherModelError: The row is not as it was registered, or not of its versions.
        LetheError: The log itself cannot be read, or does not match its signed checkpoint.
    """
    model = session.get_one(Model, model_id)
    if not registered(ledger, model).unchanged:
        raise OtherModelError(CHANGED)
    # Two rows that swapped their references each match a registration; rows of an older version
    # have the digests that the log has of it.
    current = versions.current(session, model)
    if not (
        is_newest(ledger, model, current) or (mends and _is_logged(ledger, model, current))
    ):
        raise OtherModelError(RENAMED)
    return model


def is_newest(
    ledger: Ledger, model: Model, version: ModelVersion | None, size: int | None = None
) -> bool:
    """Return whether a version is a model's last in the log; None if it should have none.

    size: of the log when the version was read; later ones do not count.
    """
    number = 0 if version is None else version.number
    logged = versions_of(ledger, model)
    known = len(logged) if size is None else logged.before(size)
    return number == known and _is_logged(ledger, model, version)


def _is_logged(ledger: Ledger, model: Model, version: ModelVersion | None) -> bool:
    if version is None:
        return True
    logged = versions_of(ledger, model)[version.number - 1 : version.number]
    return [index for index, _ in logged] == [version.log_index]


def require_rows(version: ModelVersion | None, digest: str) -> None:
    """Check, by the digest of all of them, that stored rows or sums are those of a version.

    A stored block from before an erasure, restored with its old key, can be opened again.
    Without this check, the next contribution would learn the erased row once more, and the log
    would record it as learned. The version's own row is compared with the log where its
    retained set is read.

    Raises OtherModelError if they are different rows.
    """
    if version is not None and version.statistics_digest != digest:
        raise OtherModelError(OTHER_ROWS)


class NotLoggedError(RefusedError):
    """A table's row of a version differs from the log."""


def logged_leaf(ledger: Ledger, model: Model, version: ModelVersion) -> Leaf:
    """Return the log's entry of a version, as `app.reconcile` finds it.

    Raises NotLoggedError if the table's row points at another entry, or differs from it.
    """
    try:
        return inputs.logged_leaf(ledger, model, version)
    except UnloggedVersionError as error:
        raise NotLoggedError(str(error)) from None


def check_logged(ledger: Ledger, model: Model, *versions: ModelVersion) -> None:
    """Check that head, rows and retained set of versions are those that were published.

    Raises NotLoggedError if a table differs from a version's entry.
    """
    for version in versions:
        logged_leaf(ledger, model, version)


# The upload of a waiting contribution, opened once it matches what the log received.
#
# A person with write access to the database can point a contribution at another upload, or its
# model at another reference. So the file opened here is compared, and that same open file is
# learned: no row is read in between.
OTHER_UPLOAD = (
    "nothing was learned: the stored upload is not the one that the log has as received for "
    "this contribution to this model, so rows of the tables models, contributions or artifacts "
    "were changed: find out by whom, then send the rows again"
)
NO_UPLOAD = "nothing was learned: the stored upload is destroyed or lost; send the rows again"


class OtherUploadError(RefusedError):
    """The stored upload of a contribution is not what the log received."""


@dataclass(frozen=True, slots=True)
class ReceivedUpload:
    """An upload as it was received. file: the caller closes it. artifact: its id.

    add_back: whether it was signed to bring erased records back. log_index, tag: of its entry,
    and in it.
    """

    file: BinaryIO
    artifact: str
    add_back: bool
    log_index: int
    tag: str


def open_received(
    services: Services, session: Session, model: Model, contribution: Contribution
) -> ReceivedUpload:
    """Open a contribution's upload. The session is not needed afterwards.

    model: its row, as it was compared with the log.

    Raises:
        OtherUploadError: The upload, or the model, is not that of the contribution.
        SealError: The file is missing or was altered.
    """
    artifact = contribution.upload_id
    try:
        file = services.artifacts.opened(session, artifact)
    except (NotStoredError, ShreddedError):
        raise OtherUploadError(NO_UPLOAD) from None
    entry = received_upload(
        services.ledger, services.root_secret, model, contribution, file.digest
    )
    if entry is None:
        file.close()
        raise OtherUploadError(OTHER_UPLOAD)
    index, tag = contribution.log_index, entry.digests[UPLOAD]
    return ReceivedUpload(file, artifact, ADD_BACK in entry.digests, index, tag)
