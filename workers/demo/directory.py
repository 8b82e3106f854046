"""The demonstration's directory: created, recognised, and cleared of its earlier files.

`--out` may be mistyped, so a file's name is not enough to delete it: there must be a marker of
unique content, and nothing beside it that the demonstration does not create.
"""

import os
import shutil
from pathlib import Path

from workers.demo.service import DemoError
from workers.demo.serving import serving_pid

MARKER = ".lethe-demo"
CONTENT = (
    b"lethe demo made this directory and may delete what it made in it\n7c1f0b9e52d84a63\n"
)
FOLDERS = ("certificates", "evidence", "models", "keys", "data", "log")
SERVICE, SERVICE_LOG = "service.json", "service.log"
MADE = frozenset({*FOLDERS, SERVICE, SERVICE_LOG, MARKER})


def check_directory(out: Path, data: Path | None) -> None:
    """Check that `out` may be cleared; changes nothing.

    Raises DemoError if it holds other files, or the data file itself, or a service that still
    runs there.
    """
    if not out.exists():
        return
    found = {path.name for path in out.iterdir()}
    if found and not (_is_marker(out / MARKER) and found <= MADE):
        raise DemoError(f"{out} holds files that are not a demonstration's: choose another")
    if data is not None and data.resolve().is_relative_to(out.resolve()):
        raise DemoError("the data file lies in the output directory: choose another")
    pid = serving_pid(out / "data")
    if pid is not None:
        raise DemoError(
            f"{out} belongs to the service that still runs as process {pid}: stop it "
            f"(kill {pid}), or give another directory with --out"
        )


def make_directory(out: Path, data: Path | None) -> None:
    """Create `out` afresh, deleting an earlier demonstration's files.

    Raises DemoError as `check_directory`; then nothing was deleted.
    """
    check_directory(out, data)
    for name in sorted(MADE - {MARKER}):  # the marker stays: a crash here can be repeated
        path = out / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)  # a link itself, not its target
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).write_bytes(CONTENT)
    for name in FOLDERS:
        (out / name).mkdir(mode=0o700 if name in ("keys", "data") else 0o777)


def write_private(path: Path, text: str) -> None:
    """Write a new file that only its owner may read, from its first byte on.

    Raises FileExistsError if there already is one.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _is_marker(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.read_bytes() == CONTENT
