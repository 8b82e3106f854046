"""One command at a time changes the key files, and removes what an earlier one left unfinished.

The log's lock is not enough: a command may stand still between its entry and its last file,
while another rotates anew. What the first one writes then must not be from before.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.ledger.startup import ENTRIES_KEY
from lethe.errors import LetheError
from lethe.files import PARTIAL, sync_directory


class KeysBusyError(LetheError):
    """Another command changes the key files."""

    slug = "keys-busy"
    title = "Another command changes the keys"
    status = 409


@contextmanager
def alone(folder: Path) -> Iterator[Sequence[Path]]:
    """Have no other command change the key files in `folder` meanwhile.

    Yields the unfinished files that were there before, and removes them after a block that
    succeeds. They may have a key, or the root secret sealed under one.

    Raises:
        KeysBusyError: Another command is at it.
    """
    # This file never changes its place, and nobody else locks it. Open to write, as NFS asks.
    with locked(folder / ENTRIES_KEY, os.O_RDWR):
        left = [
            folder / one.name
            for one in os.scandir(folder)
            if one.name.startswith(PARTIAL) and not one.is_dir(follow_symlinks=False)
        ]
        yield left
        remove(folder, left)


@contextmanager
def locked(path: Path, flags: int) -> Iterator[None]:
    """Hold the lock of a file that never changes its place, opened with `flags`.

    Raises:
        KeysBusyError: Another command holds it.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until it is closed
        except BlockingIOError:
            raise KeysBusyError(
                "another command changes the keys: run this again once it has ended. If it "
                f"stands still, resume it or end it (`lsof {path}` names it)"
            ) from None
        yield
    finally:
        os.close(descriptor)


def remove(folder: Path, left: Sequence[Path]) -> None:
    """Remove unfinished files; of a link, only the link.

    A file that a silo's worker was writing just now has its final name by then.
    """
    for path in left:
        path.unlink(missing_ok=True)
    if left:
        sync_directory(folder)
