"""Verifiers by the guarantee class they judge."""

from workers.errors import RefusedError
from workers.verifier import certified_approximate, exact, numerically_exact
from workers.verifier.base import Verifier

_VERIFIERS: dict[str, Verifier] = {
    verifier.id: verifier
    for verifier in (
        certified_approximate.VERIFIER,
        exact.VERIFIER,
        numerically_exact.VERIFIER,
    )
}


def get(guarantee: str) -> Verifier:
    """Return the verifier of a guarantee class. Raises RefusedError naming the known ones."""
    try:
        return _VERIFIERS[guarantee]
    except KeyError:
        raise RefusedError(
            f"no verifier for this guarantee: choose one of {', '.join(known())}"
        ) from None


def known() -> tuple[str, ...]:
    """Return the guarantee classes that can be judged, sorted."""
    return tuple(sorted(_VERIFIERS))
