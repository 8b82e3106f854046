"""What a library, or a file that took it over, can reach from the process of a fit.

A planted reader of model files tries it, in processes that start as those of fits do.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from workers.errors import RefusedError
from workers.training.recipes import prepared, process
from workers.training.recipes.process import Limits

HOSTILE = """
import json, os
from workers.errors import RefusedError

def decode(file):
    secret = file.decode()
    tries = {
        "read": lambda: open(secret).read(),
        "list": lambda: os.listdir(os.path.dirname(secret)),
        "mode": lambda: os.chmod(secret, 0o644),
        "times": lambda: os.utime(secret, ns=(1, 2)),
        "attribute": lambda: os.setxattr(secret, "user.row", b"1.5"),
        "times of what was open": lambda: os.utime(1),
        "name": lambda: os.link(secret, secret + "2"),
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
) -> Iterator[Callable[[], list[str]]]:
    """Return what a planted reader could do to a file of the same user."""
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

    def tried() -> list[str]:
        with pytest.raises(RefusedError) as found:
            process.predict(
                str(secret).encode(), np.zeros((1, 1)), LIMITS, "hostile", isolated=True
            )
        done: list[str] = json.loads(str(found.value))
        return done

    yield tried
    prepared.end_all()


def test_a_fit_reaches_no_file(hostile: Callable[[], list[str]]) -> None:
    """Neither its contents nor its metadata, which would be there for a later fit."""
    assert hostile() == []
