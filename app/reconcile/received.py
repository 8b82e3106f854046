"""Compares requests and contributions with what the log received.

Anyone with write access to the database could give a request another's sealed scope for a while
and restore its own before a comparison. So the comparison uses the same object that the scope
is read from: a row read again may differ. A contribution's upload is compared by the digest of
the file that is learned.
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
