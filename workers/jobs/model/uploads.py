"""The upload of a waiting contribution, opened once it matches what the log received.

A person with write access to the database can point a contribution at another upload, or its
model at another reference. So the file opened here is compared, and that same open file is
learned: no row is read in between.
"""

from dataclasses import dataclass
from typing import BinaryIO

from sqlmodel import Session

from app.reconcile.received import received_upload
from app.service.context import Services
from app.vault.errors import NotStoredError, ShreddedError
from app.vault.model_key import ADD_BACK
from models import Contribution, Model
from workers.errors import RefusedError

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

    add_back: whether it was signed to bring erased records back.
    """

    file: BinaryIO
    artifact: str
    add_back: bool


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
    return ReceivedUpload(file, artifact, ADD_BACK in entry.digests)
