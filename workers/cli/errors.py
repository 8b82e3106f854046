"""Errors of the mathematics, as the command line shows them."""

from collections.abc import Iterator
from contextlib import contextmanager

from lethe.errors import LetheError
from workers.errors import ModelError


class UnusableError(LetheError):
    """Data or a configuration that the mathematics refused."""

    slug, title, status = "data-refused", "Data refused", 422


@contextmanager
def shown() -> Iterator[None]:
    """Turn a ModelError into the error that `lethe` prints, cause and remedy."""
    try:
        yield
    except ModelError as error:
        raise UnusableError(str(error)) from error
