"""Methods by the name a request asks for."""

from workers.errors import RefusedError
from workers.methods.ridge import (
    acu,
    ridge_exact,
    ridge_sketched,
    ridge_woodbury,
)
from workers.methods.ridge.base import Method

_METHODS: dict[str, Method] = {
    method.id: method
    for method in (
        acu.METHOD,
        ridge_exact.METHOD,
        ridge_sketched.METHOD,
        ridge_woodbury.METHOD,
    )
}


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
