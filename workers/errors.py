"""Errors that the numerical code raises on purpose."""

from collections.abc import Iterator
from contextlib import contextmanager


class ModelError(Exception):
    """Root of the errors raised in the pure rooms of `workers`; anything else is a bug."""


class RefusedError(ModelError):
    """A method or a check declined its input. The message names the cause and the remedy."""


class MissingLibraryError(RefusedError):
    """An optional library is not installed. The message names the extra that provides it."""


class ExactnessError(RefusedError):
    """The input is too large for the arithmetic to stay exact."""


class PenaltyError(RefusedError):
    """The penalty is too small to certify the head. The message names a larger one."""


class InfeasibleRemovalError(RefusedError):
    """The rows to forget cannot all have been in the training set."""


class DatasetError(RefusedError):
    """A data file is not a federation. The message names the array, never its content."""


class ArtifactError(RefusedError):
    """Stored bytes are not the canonical encoding of a head or a state."""


@contextmanager
def refusing() -> Iterator[None]:
    """Raise RefusedError for rows or options that an exact estimator refuses."""
    from lethe.estimators.errors import EstimatorInputError

    try:
        yield
    except EstimatorInputError as error:
        raise RefusedError(str(error)) from None
