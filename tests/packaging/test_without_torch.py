"""A worker for ridge heads has no torch: what it and the service import must not need it."""

import subprocess
import sys

import pytest

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name="torch")

sys.meta_path.insert(0, Blocked())
"""


@pytest.mark.parametrize("module", ["workers.celery_app", "app.main", "lethe.cli.main"])
def test_it_is_imported_without_torch(module: str, tmp_path: object) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{BLOCKED}import {module}"],
        env={"LETHE_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
