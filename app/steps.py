"""Named steps at which a process may die, and the means to make it die there.

Each name is a place where a crash has its own consequence. The fault tests kill a process
at every one of them and then ask the ledger whether anything was lost or done twice; a name
that no test reaches is a test failure, so the list cannot rot.
"""

import os
import signal
import time
from collections.abc import Callable

STEPS = (
    "request.checked",  # nothing stored yet: the client gets no answer and sends again
    "ledger.appended",  # inside the transaction: it rolls back
    "ledger.committed",  # entry durable, no checkpoint covers it yet
    "checkpoint.guarded",  # remembered beside the key, note not yet stored
    "checkpoint.committed",  # the checkpoint is public
    "request.committed",  # acknowledged nowhere, but durable: the sweep finds it
    "request.dispatched",  # the nudge is sent, the reply is not
    "execute.leased",
    "execute.checkpoint",  # a network's round is kept: the next worker resumes from it
    "execute.computed",  # the new state exists in memory only
    "execute.written",  # artifact files on disk without a row: orphans for the sweep
    "execute.journaled",  # the erasure journal is ahead: the transaction rolls back
    "execute.applied",  # keys destroyed, files of old versions still there
    "verify.leased",
    "verify.judged",
    "verify.recorded",
    "certify.leased",
    "certify.signed",  # an envelope in memory only; a second run signs another
    "certify.committed",  # the certificate is durable and is the only one there can be
    "retention.destroyed",  # keys and rows are gone; files remain and the log has no entry
    "retention.unlinked",  # everything is gone but not logged: the next run writes the entry
    "follow.copied",  # a copy is in the data directory: the next follower removes it
    "follow.written",  # new pieces that no manifest names: the state is the one before
    "follow.committed",  # the state is the new one, with pieces that only the old one names
)

NETWORK_STEPS = ("execute.checkpoint",)  # ridge heads have no rounds to be killed between

RETENTION_STEPS = ("retention.destroyed", "retention.unlinked")

FOLLOW_STEPS = ("follow.copied", "follow.written", "follow.committed")

Handler = Callable[[str], None]
_handler: Handler | None = None


class PlantedFaultError(BaseException):
    """Raised by a planted `raise` fault; no handler of ordinary errors may swallow it."""


def reached(step: str) -> None:
    """Mark that execution passed `step`. Does nothing unless a fault was planted."""
    assert step in STEPS, step
    if _handler is not None:
        _handler(step)


def install(handler: Handler | None) -> None:
    """Plant `handler` at every step of this process; None removes it."""
    global _handler
    _handler = handler


def plant(fault: str) -> None:
    """Install the fault `STEP[@N]=kill|raise|freeze`: at the Nth time STEP is reached.

    Raises ValueError if the description is malformed or names no step.
    """
    place, _, action = fault.partition("=")
    step, _, nth = place.partition("@")
    if (
        step not in STEPS
        or action not in ("kill", "raise", "freeze")
        or not (nth or "1").isdecimal()
    ):
        raise ValueError(
            f"LETHE_FAULT must be STEP[@N]=kill|raise|freeze with STEP one of {STEPS}"
        )
    remaining = int(nth or "1")

    def handler(name: str) -> None:
        nonlocal remaining
        if name != step:
            return
        remaining -= 1
        if remaining == 0:
            if action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if action == "freeze":  # until somebody sends SIGCONT
                os.kill(os.getpid(), signal.SIGSTOP)
                time.sleep(1)  # the stop may reach this thread after the next statement
                return
            raise PlantedFaultError(step)

    install(handler)
