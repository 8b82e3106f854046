"""fsck of contributions that wait: each has the upload that the log received for it.

A worker learns no other: it is said here before its turn comes.
"""

from sqlmodel import Session, col, select

from app.reconcile.findings import FsckReport
from app.reconcile.received import is_of_upload
from app.vault.master import RootSecret
from lethe.log.entries import EntryError, parse_leaf
from models import Artifact, Contribution, LogEntry, Model

FETCH = 500  # rows in memory at once
OTHER = "a contribution that waits has another upload or model than the log received"


def check_contributions(session: Session, root_secret: RootSecret, report: FsckReport) -> None:
    """Compare each contribution that is not learned yet with its entry.

    What was learned is in the log by its rows; of an artifact's row the file is read elsewhere.
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
    except EntryError:  # `check_tree` names it
        return False
