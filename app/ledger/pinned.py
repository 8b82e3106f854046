"""What the log holds a model to: the columns that its entry `model.registered` commits to."""

import hashlib
from typing import Any

from lethe import canonical
from models import Model, ModelVersion

UNREADABLE = "unreadable"  # in place of the digest of JSON that has no canonical form


def pinned_of(model: Model) -> dict[str, Any]:
    """Return what a model was registered with, as its row has it now."""
    return {name: getattr(model, name) for name in ("config", "classes", "method", "extractor")}


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


def measured_digest(version: ModelVersion) -> str | None:
    """Return the digest of what a version's row says of held-out rows, None for nothing."""
    try:
        return None if version.held_out is None else digest_of(version.held_out)
    except (ValueError, RecursionError):
        return UNREADABLE
