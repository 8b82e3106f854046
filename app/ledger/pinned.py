"""The pinned columns of a model: its log entry `model.registered` commits to their digest."""

import hashlib
from typing import Any

from lethe import canonical
from models import Model, ModelVersion

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
