"""`make witness-check` says so when it checked nothing, and its record is of what is pinned."""

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.markdown import REPOSITORY, read
from tests.interop.witness.record import BEGIN, END, REQUIRED


def test_it_fails_if_the_packages_cannot_be_installed(tmp_path: Path) -> None:
    environment = os.environ | {"PIP_NO_INDEX": "1", "PYTHON": sys.executable}
    done = subprocess.run(
        [REQUIRED.with_name("check.sh"), tmp_path / "own"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "No matching distribution found for aics-" in done.stderr
    assert "nothing was checked" in done.stderr


def test_the_record_names_the_versions_that_are_pinned() -> None:
    record = read("docs/witnesses.md").partition(BEGIN)[2].partition(END)[0]
    for line in REQUIRED.read_text().splitlines():
        assert line.replace("==", " ") in record
