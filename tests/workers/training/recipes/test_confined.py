"""What a library, or a file that took it over, can reach from the process of a fit.

A planted reader of model files tries it, in processes that start as those of fits do.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from workers.errors import RefusedError
from workers.training.recipes import prepared, process
from workers.training.recipes.process import Limits

HOSTILE = """
import json, os, resource
from workers.errors import RefusedError

def decode(file):
    asked = json.loads(file)
    secret, sibling = asked["secret"], asked["sibling"]
    tries = {
        "read": lambda: open(secret).read(),
        "list": lambda: os.listdir(os.path.dirname(secret)),
        "mode": lambda: os.chmod(secret, 0o644),
        "times": lambda: os.utime(secret, ns=(1, 2)),
        "attribute": lambda: os.setxattr(secret, "user.row", b"1.5"),
        "times of what was open": lambda: os.utime(1),
        "name": lambda: os.link(secret, secret + "2"),
        "signal": lambda: os.kill(sibling, 0),
        "limits": lambda: resource.prlimit(sibling, resource.RLIMIT_NOFILE),
        "priority": lambda: os.getpriority(os.PRIO_PROCESS, sibling),
        "processors": lambda: os.sched_getaffinity(sibling),
    }
    done = []
    for name, attempt in tries.items():
        try:
            attempt()
        except OSError:
            continue
        done.append(name)
    raise RefusedError(json.dumps(done))
"""
SECRET = "root.sealed"
LIMITS = Limits(seconds=60, memory=4 << 30)


@pytest.fixture(params=["forked", "started"])
def hostile(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int], list[str]]]:
    """Return what a planted reader could do to a file and a process of the same user."""
    prepared.end_all()
    if request.param == "started":
        monkeypatch.delattr(os, "pidfd_open")
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "hostile.py").write_text(HOSTILE)
    monkeypatch.setattr(process, "ROOT", f"{process.ROOT}{os.pathsep}{planted}")
    secret = tmp_path / "keys" / SECRET
    secret.parent.mkdir()
    secret.write_text("x")

    def tried(sibling: int) -> list[str]:
        sent = json.dumps({"secret": str(secret), "sibling": sibling}).encode()
        with pytest.raises(RefusedError) as found:
            process.predict(sent, np.zeros((1, 1)), LIMITS, "hostile", isolated=True)
        done: list[str] = json.loads(str(found.value))
        return done

    yield tried
    prepared.end_all()


def test_a_fit_reaches_no_file_and_no_process(hostile: Callable[[int], list[str]]) -> None:
    """Their metadata, limits and priorities, too, would be there for a later fit."""
    sibling = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert hostile(sibling.pid) == []
    finally:
        sibling.kill()
        sibling.communicate()
