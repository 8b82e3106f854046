"""What ends a federated training by name."""

from collections.abc import Collection

from workers.errors import RefusedError


class RoundFailedError(RefusedError):
    """Fewer clients answered a round usably than the configuration asks for.

    reasons: those of the faults, where they are known.
    """

    def __init__(self, message: str, reasons: Collection[str] = ()) -> None:
        """Keep the message and the reasons."""
        super().__init__(message)
        self.reasons = frozenset(reasons)


class DivergedError(RefusedError):
    """The weights stopped being finite. They are not returned: the last checkpoint stands."""


class MessageError(RefusedError):
    """Bytes are not the one spelling of a round message."""


class CheckpointError(RefusedError):
    """A checkpoint cannot be read, or belongs to another run."""


class DeviceError(RefusedError):
    """A device that was asked for is missing, or computes wrongly. The message says which."""
