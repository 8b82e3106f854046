"""Files on their way into a mirror: each process has a directory of its own there.

A process holds the lock of its directory. One whose lock is free was left by a killed process,
with as much as a whole log, and is removed before the next is made. Where directories have no
locks, as on NFS, nothing tells the two apart, and they stay.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from lethe.files import alone_in

PREFIX = ".incoming-"


@contextmanager
def incoming(mirror: Path) -> Iterator[Path]:
    """Yield a new directory in a mirror, and remove it.

    Inside the mirror, so that moving a file into place is an atomic rename. Raises OSError: the
    mirror cannot be written, or another process has been in `alone_in` for too long.
    """
    with ExitStack() as held:
        with alone_in(mirror):  # nobody takes what is not locked yet for a leftover
            for left in mirror.glob(f"{PREFIX}*"):
                with _locked(left) as free:
                    if free:
                        shutil.rmtree(left, ignore_errors=True)
            place = Path(held.enter_context(TemporaryDirectory(prefix=PREFIX, dir=mirror)))
            held.enter_context(_locked(place))
        yield place


@contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Hold the lock of a directory in the block; False if another process does."""
    import fcntl  # not on Windows, where certificates can be verified too

    try:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(directory, flags)
    except OSError:  # it is gone, or no directory
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
