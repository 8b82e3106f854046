"""Faults of the disk."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.alerts.fault import Faults, Said
from tests.e2e.alerts.installation import Watched

FAULTS = Faults()

SPARE_AT_LIMIT = 1 << 30  # bytes; others write to the same disk meanwhile
STEP, MOST = 100 << 20, 20 << 30  # bytes; others need the disk too


@contextmanager
def filled(made: Watched, least: int) -> Iterator[None]:
    """Write a file that leaves `least` bytes of the disk."""
    ballast = made.processes.directory / "ballast"
    with ballast.open("wb") as file:
        free = shutil.disk_usage(made.data).free
        os.posix_fallocate(file.fileno(), 0, max(1, free - least))
    try:
        yield
    finally:
        ballast.unlink()


@FAULTS.add(
    "LetheDiskLow",
    "a file is written that leaves 3.9 times `LETHE_MIN_FREE_BYTES`",
    "the file is deleted",
    "LetheDiskFull",
)
def _(made: Watched) -> Iterator[None]:
    least = int(made.processes.more["LETHE_MIN_FREE_BYTES"])
    with filled(made, least * 39 // 10):
        yield


@FAULTS.add(
    ("LetheNotReady of space", "LetheDiskLow"),
    "a file is written that leaves less than `LETHE_MIN_FREE_BYTES`, which is near what was free",
    "the service's log names it; the file is deleted, and the limit is what it was",
    "LetheDiskFull",
)
def _(made: Watched) -> Iterator[None]:
    said = Said.by(made, "api")
    least = shutil.disk_usage(made.data).free - SPARE_AT_LIMIT
    made.restart_api(LETHE_MIN_FREE_BYTES=str(least))
    with filled(made, least - SPARE_AT_LIMIT):
        yield
        assert said.times("not ready: space: ") == 1
        assert made.unready() == {"space"}
    made.restart_api()


@FAULTS.add(
    "LetheDiskFull",
    f"a file grows by {STEP * 2 >> 20} MiB each second",
    "it grows no more, and is deleted",
    "LetheDiskLow",
)
def _(made: Watched) -> Iterator[None]:
    over, ballast = threading.Event(), made.processes.directory / "ballast"

    def grow() -> None:
        with ballast.open("wb") as file:
            for size in range(STEP, MOST, STEP):
                if over.wait(0.5):
                    return
                os.posix_fallocate(file.fileno(), 0, size)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        ballast.unlink()
