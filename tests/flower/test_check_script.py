"""`flower/check.sh` skips where flwr cannot be installed, and nowhere else."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs.markdown import REPOSITORY

# Stands in for the environment's python: prints its arguments, fails at one of the steps.
PYTHON = """#!/bin/sh
echo "$@"
case "$*" in {fails}) exit 3 ;; esac
"""


def _run(directory: Path, fails: str) -> subprocess.CompletedProcess[str]:
    python = directory / "bin" / "python"
    python.parent.mkdir()
    python.write_text(PYTHON.format(fails=fails))
    python.chmod(0o755)
    return subprocess.run(
        [REPOSITORY / "flower" / "check.sh", directory],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_flwr_it_is_skipped(tmp_path: Path) -> None:
    done = _run(tmp_path, "*install*flwr*")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("skipped: ")
    assert "flower_check" not in done.stdout


@pytest.mark.parametrize("fails", ["*requirements.txt*", "*pytest\\ -q*", "*flower_check*"])
def test_any_other_failure_is_one(tmp_path: Path, fails: str) -> None:
    done = _run(tmp_path, fails)
    assert done.returncode == 3
    assert "skipped" not in done.stdout


def test_it_installs_what_the_environment_names_and_runs_the_check(tmp_path: Path) -> None:
    done = _run(tmp_path, "nothing")
    assert done.returncode == 0
    assert "install --quiet --disable-pip-version-check flwr>=1.41,<1.42" in done.stdout
    assert "-r flower/requirements.txt ." in done.stdout
    assert done.stdout.splitlines()[-1] == "-m flower_check.check"
