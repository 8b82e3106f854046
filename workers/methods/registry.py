"""Methods by the name a request asks for."""

from workers.errors import RefusedError
from workers.methods import ridge_exact
from workers.methods.base import Method

_METHODS: dict[str, Method] = {ridge_exact.METHOD.id: ridge_exact.METHOD}


def get(method_id: str) -> Method:
    """Return the method of that name. Raises RefusedError naming the known ones."""
    try:
        return _METHODS[method_id]
    except KeyError:
        # The name asked for comes from outside and is not echoed.
        raise RefusedError(f"unknown method: choose one of {', '.join(known())}") from None


def known() -> tuple[str, ...]:
    """Return the names of all methods, sorted."""
    return tuple(sorted(_METHODS))
