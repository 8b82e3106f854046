"""Numerical errors, as the command line shows them."""

from collections.abc import Iterator
from contextlib import contextmanager

from lethe.errors import LetheError
from workers.errors import ModelError


class UnusableError(LetheError):
    """Data or a configuration that the numerical code refused."""

    slug, title, status = "data-refused", "Data refused", 422


@contextmanager
def shown() -> Iterator[None]:
    """Convert a ModelError to the error that `lethe` prints, with cause and remedy."""
    try:
        yield
    except ModelError as error:
        raise UnusableError(str(error)) from error
