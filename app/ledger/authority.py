"""Whether a call may still act, looked at again in each of its transactions of the log.

A token may be revoked while its call waits: for its body, which may take hours, for a look-up,
or for the log's lock. Under that lock it is revoked too, so that nothing is stored by a call
whose token was revoked before. The check belongs to the call's context: as a parameter it would
be missing where somebody forgets to pass it on.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sqlmodel import Session

Check = Callable[[Session], None]
_check: ContextVar[Check | None] = ContextVar("authority", default=None)


@contextmanager
def own_authority() -> Iterator[None]:
    """Run one call in the block: a check that it sets ends with it."""
    before = _check.set(None)
    try:
        yield
    finally:
        _check.reset(before)


def act_for(check: Check) -> None:
    """Have each transaction of this call begin with `check`.

    check: raises if the caller may not act any more; then nothing of the transaction is stored.
    """
    _check.set(check)


def require_authority(session: Session) -> None:
    """Check that this call may still act, in a transaction under the log's lock.

    Raises what the call's check raises. A call without one, as of a command or a worker, may.
    """
    if (check := _check.get()) is not None:
        check(session)
