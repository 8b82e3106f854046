"""A machine whose containers may not unshare: neither a program nor its ONNX graph runs."""

import platform
import subprocess
import sys

import pytest

from workers.training.isolation import confinement

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in confinement.PROCESSORS,
    reason="the filter is of Linux, on a known processor",
)
# As in a container's default profile: unshare fails with EPERM, everything else is allowed.
DENIED = """
import ctypes, struct
from workers.training.isolation import confinement

number = {"x86_64": 272, "aarch64": 97}[__import__("platform").machine()]
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
held = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in steps))
libc = confinement._libc
assert not libc.prctl(38, 1, 0, 0, 0)
assert not libc.prctl(22, 2, struct.pack("@HP", 4, ctypes.addressof(held)), 0, 0)
"""
ASKED = """
import numpy as np
from tests.workers.training.programs.test_outputs import onnx_file
from tests.workers.training.programs.test_run import config, script
from workers.training.programs import run
from workers.training.recipes import prepared, process
from workers.training.recipes.fit import FitRows
from workers.training.recipes.recipe import Recipe, RecipeStep

limits = process.Limits(60, 4 << 30, 1 << 20)
rows = np.array([[1.0, 1.0], [2.0, -1.0]])
if not FORKED:
    prepared.answer = lambda *_: None
try:
    found = run.predict(
        {**config(script(output="onnx")), "columns": 2}, onnx_file().SerializeToString(), rows, limits
    )
    print(found.tolist())
except confinement.IsolationError as error:
    print(error)
recipe = Recipe((RecipeStep("sklearn.naive_bayes.GaussianNB", {}),), 0, None)
print(len(process.fit(recipe, FitRows(rows, np.array([0, 1])), 1, limits)) > 0)
"""


IMPORTED = "from workers.training.isolation import confinement\n"


@pytest.mark.parametrize("forked", [True, pytest.param(False, marks=pytest.mark.full)])
def test_an_onnx_graph_runs_only_isolated(forked: bool) -> None:
    """Recipes' estimators are the libraries' own code: their fits run there all the same."""
    asked = ASKED.replace("FORKED", str(forked))
    found, fitted = (_said(DENIED + asked), _said(IMPORTED + asked))
    assert "user namespaces is missing" in found[0]
    assert "docs/scripts.md" in found[0]
    assert fitted[0] == "[3.0, 0.0]"
    assert found[1] == fitted[1] == "True"


def _said(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()
