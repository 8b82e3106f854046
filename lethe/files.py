"""Files that survive a crash: whole or not there at all, and durable once written."""

import logging
import os
import tempfile
from pathlib import Path

log = logging.getLogger(__name__)
PARTIAL = ".partial-"  # prefix of files that a crash left unfinished; nothing ever reads one


def write_durably(path: Path, data: bytes, *, replace: bool = True, mode: int = 0o600) -> None:
    """Write `path` so that after a crash it has the old content or the new, never a part.

    The content and the name are on disk when this returns. With `replace` False an existing
    file is left alone, also if it appears while this runs.

    Raises:
        FileExistsError: `replace` is False and the file exists.
        OSError: The disk is full or failing; `path` is as it was.
    """
    descriptor, name = tempfile.mkstemp(prefix=PARTIAL, dir=path.parent)
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            partial.replace(path)
        else:
            os.link(partial, path)  # unlike a rename, refuses an existing name atomically
            partial.unlink()
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` durable: created, renamed and removed files."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def keep_private() -> None:
    """Have what this process creates be its user's alone; a narrower umask stays."""
    os.umask(os.umask(0o077) | 0o077)


def warn_if_shared(directory: Path) -> None:
    """Log a warning if others may look into a directory that holds keys and people's data."""
    mode = directory.stat().st_mode & 0o777
    if mode & 0o077:
        log.warning(
            "the data directory has mode %03o, and others of this machine may read in it: "
            "chmod 700",
            mode,
        )
