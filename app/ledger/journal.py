"""Writes events to the log together with the openings of their commitments.

A leaf holds a commitment; the event itself and its key stay in tables that can be erased.

A model's log entry `model.registered` commits to the digest of its pinned columns.
"""

import hashlib
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from app.ledger.transaction import Transaction
from lethe import canonical
from lethe.catalogue import check_event
from lethe.log.entries import (
    COMMITMENT_KEY_SIZE,
    ERASURE_EVENT,
    RETENTION_ENDED,
    Ended,
    Leaf,
    commit_event,
    event_leaf,
    hold_leaf,
    key_leaf,
    master_key_leaf,
    model_leaf,
    retention_leaf,
    service_key_leaf,
)
from lethe.log.key_changes import KeyChange, MasterKeyChange
from models import ErasureRequest, KeyEvent, Model, ModelVersion, RequestEvent


def opening(ref: str, event: str, at: datetime, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event that a leaf commits to: the JSON object under the HMAC.

    `lethe.log.entries.check_commitment` checks it against the log with the request's key.
    """
    return {
        "at": at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "event": event,
        "payload": dict(payload),
        "ref": ref,
    }


def record_request_event(
    tx: Transaction, request: ErasureRequest, event: str, payload: dict[str, Any]
) -> int:
    """Append an event of `request` to the log, store its opening, return the log index.

    `request` must be stored or in the session; its event is stored just before the commit.
    Raises EntryError: `payload` is not JSON.
    """
    key = bytes(request.event_key)
    index = append_request_event(tx, request.ref, key, event, payload)
    opened = {"log_index": index, "request_id": request.id, "event": event}
    tx.insert(RequestEvent, {**opened, "at": tx.now, "payload": payload})
    return index


def append_request_event(
    tx: Transaction, ref: str, key: bytes, event: str, payload: dict[str, Any]
) -> int:
    """Append an event of request `ref` to the log; the caller stores its opening.

    key: the request's key, which opens the commitment.

    Raises EntryError: `payload` is not JSON.
    """
    check_event("request", event, payload)
    commitment = commit_event(key, opening(ref, event, tx.now, payload))
    day = tx.now.date()
    leaf = event_leaf(event, ref, commitment, day)
    return tx.append(leaf, Leaf(ERASURE_EVENT, event, ref, commitment, day=day))


def record_key_event(tx: Transaction, ref: str, event: str, payload: dict[str, Any]) -> int:
    """Append an event of a key's registration to the log, store its opening, return its index.

    Raises EntryError: `payload` is not JSON.
    """
    check_event("key", event, payload)
    key = secrets.token_bytes(COMMITMENT_KEY_SIZE)
    commitment = commit_event(key, opening(ref, event, tx.now, payload))
    index = tx.append(key_leaf(event, ref, commitment, tx.now.date()))
    opened = {"log_index": index, "ref": ref, "event": event, "at": tx.now}
    tx.insert(KeyEvent, {**opened, "payload": payload, "key": key})
    return index


def record_hold_event(
    tx: Transaction, ref: str, event: str, key: bytes, payload: dict[str, Any]
) -> int:
    """Append an event of a legal hold to the log and return its index.

    key: the hold's key, which opens the commitment; the event is stored in the hold's row.

    Raises EntryError: `payload` is not JSON.
    """
    check_event("hold", event, payload)
    commitment = commit_event(key, opening(ref, event, tx.now, payload))
    return tx.append(hold_leaf(event, ref, commitment, tx.now.date()))


def record_model_event(
    tx: Transaction, ref: str, event: str, digests: Mapping[str, str]
) -> int:
    """Append an event of model `ref` to the log and return the log index.

    Raises EntryError: the ref or a digest is malformed.
    """
    check_event("model", event, digests)
    return tx.append(model_leaf(event, ref, digests, tx.now.date()))


def record_service_key_event(tx: Transaction, event: str, change: KeyChange) -> int:
    """Append a change of a service key to the log and return the log index.

    Raises EntryError: the change is malformed.
    """
    leaf = service_key_leaf(change, tx.now.date())
    return _append_change(tx, "service-key", event, change, leaf)


def record_master_key_event(tx: Transaction, event: str, change: MasterKeyChange) -> int:
    """Append a change of a master key to the log and return the log index.

    Raises EntryError: the change is malformed.
    """
    leaf = master_key_leaf(change, tx.now.date())
    return _append_change(tx, "master-key", event, change, leaf)


def _append_change(
    tx: Transaction,
    kind: Literal["service-key", "master-key"],
    event: str,
    change: KeyChange | MasterKeyChange,
    leaf: bytes,
) -> int:
    payload = change.members()
    check_event(kind, payload.pop("event"), payload)
    assert change.event == event
    return tx.append(leaf)


def record_retention_event(
    tx: Transaction, event: str, ended: Mapping[str, Ended], items: str
) -> int:
    """Append the summary of what an end of retention destroyed, and return the log index.

    items: SHA-256 in hex of the list of destroyed items.

    Raises EntryError: nothing was destroyed, or a kind or the digest is malformed.
    """
    counts = {kind: one.count for kind, one in ended.items()}
    before = {kind: one.before.isoformat() for kind, one in ended.items()}
    check_event("retention", event, {"counts": counts, "before": before, "items": items})
    assert event == RETENTION_ENDED
    return tx.append(retention_leaf(ended, items, tx.now.date()))


PINNED = ("config", "classes", "method", "extractor", "decide", "cooling_off")
UNREADABLE = "unreadable"  # in place of the digest of JSON that has no canonical form


def pinned_of(model: Model) -> dict[str, Any]:
    """Return the current values of a model's pinned columns."""
    return {name: getattr(model, name) for name in PINNED}


def digest_of(pinned: dict[str, Any]) -> str:
    """Return the digest of pinned values, as logged at registration."""
    return hashlib.sha256(canonical.encode(pinned)).hexdigest()


def stored_digest(model: Model) -> str:
    """Return the digest of a model's current pinned values, UNREADABLE if they have none.

    Anyone with write access to the database can store arbitrary JSON there, such as NaN.
    """
    try:
        return digest_of(pinned_of(model))
    except (ValueError, RecursionError):
        return UNREADABLE


def registered_policy(model: Model, digest: str) -> tuple[str, int] | None:
    """Return `decide` and `cooling_off` of the registration with this logged digest.

    Returns None if any other pinned column differs from the registration.
    """
    for decide in ("review", "at-once"):
        try:
            if digest_of({**pinned_of(model), "decide": decide}) == digest:
                return decide, model.cooling_off
        except (ValueError, RecursionError):
            return None
    return None


def digests_of(version: ModelVersion) -> dict[str, str | None]:
    """Return a version's digests as its log entry names them.

    held-out: of the measurement on held-out rows, None if there is none.
    """
    try:
        measured = None if version.held_out is None else digest_of(version.held_out)
    except (ValueError, RecursionError):
        measured = UNREADABLE
    return {
        "head": version.head_digest,
        "statistics": version.statistics_digest,
        "retained": bytes(version.retained_root).hex(),
        "held-out": measured,
    }
