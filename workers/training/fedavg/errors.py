"""Errors that end a federated training."""

from collections.abc import Collection

from workers.errors import RefusedError


class RoundFailedError(RefusedError):
    """Fewer clients answered a round usably than the configuration requires.

    reasons: those of the faults, where they are known.
    """

    def __init__(self, message: str, reasons: Collection[str] = ()) -> None:
        super().__init__(message)
        self.reasons = frozenset(reasons)


class DivergedError(RefusedError):
    """The weights are no longer finite. They are not returned: the last checkpoint is valid."""


class MessageError(RefusedError):
    """The bytes are not a canonical round message."""


class CheckpointError(RefusedError):
    """A checkpoint cannot be read, or belongs to another run."""


class DeviceError(RefusedError):
    """The requested device is missing or computes wrongly. The message says which."""
