"""What the log holds a model to: the columns that its entry `model.registered` commits to."""

import hashlib
from typing import Any

from lethe import canonical
from models import Model, ModelVersion

PINNED = ("config", "classes", "method", "extractor", "decide", "cooling_off")
UNREADABLE = "unreadable"  # in place of the digest of JSON that has no canonical form


def pinned_of(model: Model) -> dict[str, Any]:
    """Return what a model was registered with, as its row has it now."""
    return {name: getattr(model, name) for name in PINNED}


def digest_of(pinned: dict[str, Any]) -> str:
    """Return the digest by which the log holds a model to its registration."""
    return hashlib.sha256(canonical.encode(pinned)).hexdigest()


def stored_digest(model: Model) -> str:
    """Return the digest of what a model's row has now, UNREADABLE where there is none.

    Who writes the database may store any JSON there, such as NaN.
    """
    try:
        return digest_of(pinned_of(model))
    except (ValueError, RecursionError):
        return UNREADABLE


def registered_policy(model: Model, digest: str) -> tuple[str, int] | None:
    """Return `decide` and `cooling_off` of the registration that the log has this digest of.

    None if the row has anything else than what was registered, but for `decide`.
    """
    for decide in ("review", "at-once"):
        try:
            if digest_of({**pinned_of(model), "decide": decide}) == digest:
                return decide, model.cooling_off
        except (ValueError, RecursionError):
            return None
    return None


def measured_digest(version: ModelVersion) -> str | None:
    """Return the digest of what a version's row says of held-out rows, None for nothing."""
    try:
        return None if version.held_out is None else digest_of(version.held_out)
    except (ValueError, RecursionError):
        return UNREADABLE
