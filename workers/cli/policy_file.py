"""A policy in a file, as people keep it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.verifier.policy import Policy


def load(file: Path) -> "Policy":
    """Return the policy in a file, in whatever layout its JSON has. Raises RefusedError."""
    from workers.errors import RefusedError
    from workers.verifier.policy import from_document

    try:
        return from_document(json.loads(file.read_text(encoding="utf-8")))
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise RefusedError(
            "the file is no JSON: write one with `lethe policy default`"
        ) from None
