"""After an error: whether it may pass by itself, and how long until the next try."""

from lethe.errors import LetheError
from models.database.session import unavailable

LONGEST_COOL_DOWN_S = 60


def is_outside(error: Exception) -> bool:
    """Return whether an error is the environment's and may pass by itself."""
    if isinstance(error, LetheError):
        return error.status >= 500
    return isinstance(error, OSError | MemoryError) or unavailable(error)


def cool_down_s(tries: int) -> int:
    """Return the seconds until the next try, after so many."""
    return min(1 << tries, LONGEST_COOL_DOWN_S)
