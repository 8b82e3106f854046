"""Ridge methods by the name in a request."""

from workers.discovery import import_room
from workers.errors import RefusedError
from workers.methods.ridge.base import METHODS, Method

import_room("workers.methods.ridge")


def get(method_id: str) -> Method:
    """Return the method of that name. Raises RefusedError naming the known ones."""
    try:
        return METHODS[method_id]
    except KeyError:
        # The requested name is untrusted and not echoed.
        raise RefusedError(f"unknown method: choose one of {', '.join(known())}") from None


def known() -> tuple[str, ...]:
    """Return the names of all methods, sorted."""
    return tuple(sorted(METHODS))
