"""Whether requests ask for what the log received, and contributions bring it.

Whoever writes the database can give a request the sealed scope of another for a while, and put
its own back before anybody compares. So the object that a scope is read from is the one that is
compared: a row that is read again may be another one. The upload of a contribution is compared
by the digest of the file that is learned.
"""

from collections.abc import Sequence

from sqlmodel import Session

from app.ledger.sequencer import Ledger
from app.reconcile.judgement import RECEIVED, Event, opened
from app.reconcile.model_events import requests_events, signed_leaf
from app.vault.errors import SealError
from app.vault.master import RootSecret
from app.vault.model_key import UPLOAD, upload_tag
from lethe.log.entries import MODEL_EVENT, CommitmentError, EntryError, Leaf
from lethe.log.proofs import ProofError
from models import Contribution, ErasureRequest, Model, RequestEvent
from models.database.session import read_by_id

UPLOADED = ("contribution.received", "model.registered")  # the events that commit to an upload


def is_as_received(request: ErasureRequest, model: Model, events: Sequence[Event]) -> bool:
    """Return whether a request has the model, scope and method that the log received."""
    if not events or events[0].event != RECEIVED or events[0].index != request.log_index:
        return False
    received = events[0].payload
    stored = {"model": model.ref, "scope": request.scope, "method": request.method}
    return all(received.get(name) == value for name, value in stored.items())


def changed_since_received(
    ledger: Ledger, session: Session, model: Model, requests: Sequence[ErasureRequest]
) -> set[str]:
    """Return the ids of those of a model's open requests whose rows are not as received.

    Raises what `requests_events` raises.
    """
    leaves = requests_events(ledger, [one.ref for one in requests])
    first = [index for own in leaves.values() for index, _ in own[:1]]
    read_by_id(session, RequestEvent, first)  # at once: the session keeps them
    return {
        one.id
        for one in requests
        if not is_as_received(one, model, _received(session, one, leaves[one.ref]))
    }


def _received(
    session: Session, request: ErasureRequest, leaves: Sequence[tuple[int, Leaf]]
) -> list[Event]:
    """Return a request's first event, none where what is stored does not open it."""
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
    """Return the log's entry of a contribution, None if it is not of this upload and model.

    digest: hex SHA-256 of the file that was opened.

    Raises:
        LetheError: The log cannot be read.
    """
    try:
        leaf = signed_leaf(ledger, contribution.log_index)
    except (EntryError, ProofError):
        return None
    return leaf if is_of_upload(leaf, root_secret, model, contribution, digest) else None


def is_of_upload(
    leaf: Leaf, root_secret: RootSecret, model: Model, contribution: Contribution, digest: str
) -> bool:
    """Return whether an entry received such an upload for a contribution to a model."""
    if leaf.kind != MODEL_EVENT or leaf.event not in UPLOADED or leaf.ref != model.ref:
        return False
    try:
        tag = upload_tag(root_secret, model, contribution.id, digest)
    except SealError:  # the model's key is that of another reference
        return False
    return leaf.digests.get(UPLOAD) == tag
