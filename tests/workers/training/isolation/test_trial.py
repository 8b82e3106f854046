"""The trial says what fits and scripts then meet: each missing piece is named, and for whom."""

import json
import subprocess
import sys

import pytest

from tests.workers.training.programs.test_run import MISSING

TMPFS = (
    "mounts",
    "real = confinement._libc.mount\n"
    "confinement._libc.mount = lambda n, *a: -1 if n == b'tmpfs' else real(n, *a)",
)
# What is lost where a piece is missing. Fits need no file system of their own, and run without
# read-only mounts: tests/workers/training/recipes/test_process.py has both.
LOST = {
    "mount": {"metadata", "scripts"},
    "read-only mounts": {"metadata", "scripts"},
    "tmpfs": {"scripts"},
}
EVERYTHING = {"fits", "metadata", "scripts"}


def tried(planted: str) -> dict[str, str | None]:
    source = (
        "from workers.training.isolation import confinement, trial\n"
        + planted
        + "\ntrial.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    found: dict[str, str | None] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", [*MISSING, "tmpfs"])
def test_a_missing_piece_is_named(name: str) -> None:
    what, planted = (MISSING | {"tmpfs": TMPFS})[name]
    found = tried(planted)
    lost = {part: why for part, why in found.items() if why is not None}
    assert set(lost) == LOST.get(name, EVERYTHING)
    assert all(
        f"{what} is missing" in why and "docs/scripts.md" in why for why in lost.values()
    )


def test_nothing_is_missing_where_scripts_run() -> None:
    assert tried("") == dict.fromkeys(EVERYTHING)


def test_a_trial_that_dies_is_no_success() -> None:
    found = tried("import os\nconfinement.confine = lambda _: os._exit(1)")
    assert found == dict.fromkeys(EVERYTHING, "the process died")
