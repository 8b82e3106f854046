"""The recipes of docs/development.md: a method, a check and a log event are two files each.

Each is added to a copy of the source, as its catalogue line and its own file. Then everything
that offers or runs such additions must know them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("lethe", "app", "workers", "models", "migrations", "tests")

# The catalogue's lines, before the closing bracket of their table; then the other file.
LINES = {
    "_METHODS = (": 'MethodSpec("planted", "network", "a method of a test"),',
    "_CHECKS = (": 'CheckSpec("planted-rank", "rank of the head", "at least 0", "a rank"),',
    "_EVENTS = (": '_model("model.planted", "a test planted it", "head"),',
}
FILES = {
    "workers/methods/network/planted.py": '''
from dataclasses import replace
from workers.methods.network.base import method
from workers.methods.network.natural import Natural

@method("planted")
class Planted(Natural):
    """Does what the control does."""
    id = "planted"
''',
    "workers/judge/ridge/planted.py": '''
import numpy as np
from lethe.catalogue import CHECKS
from workers.judge.checks import judged
from workers.judge.ridge.room import FURTHER

@FURTHER.check("planted-rank")
def check_rank(judging):
    """Judge the rank."""
    rank = int(np.linalg.matrix_rank(judging.claim.ridge.head))
    return [judged(CHECKS["planted-rank"], str(rank), passed=rank >= 0)]
''',
    "app/service/planted.py": '''
from app.ledger.journal import record_model_event

def plant(tx, model):
    """Record it."""
    record_model_event(tx, model, "model.planted", {"head": "ab" * 32})
''',
}
CHECKED = """
import lethe, os
assert lethe.__file__.startswith(os.getcwd()), lethe.__file__

from app.schemas.audits import NewAudit
from app.schemas.families.networks import NewNetwork
from app.service.methods import offered
from workers.methods.network.registry import make
assert make("planted").id == "planted"
assert "planted" in offered({"family": "network"})
assert "planted" in str(NewNetwork.model_json_schema()["properties"]["method"])

from tests.workers.judge.claims import erasure, exact_claim
from workers.judge import registry
report = registry.get("exact").verify(exact_claim(erasure()))
check = report.checks[-1]
assert (report.result, check.name, check.value) == ("PASS", "planted-rank", "3"), report
assert check.number == len(report.checks)
assert check.quantity == "rank of the head"

from fastapi import FastAPI
from app.api import models
from app.api.http.openapi import install
from lethe.catalogue import check_event
check_event("model", "model.planted", {"head": "ab" * 32})
api = FastAPI()
api.include_router(models.router)
install(api)
schemas = api.openapi()["components"]["schemas"]
assert list(schemas["event.model.planted"]["properties"]) == ["head"]
assert "planted" in str(schemas["NewNetwork"]["properties"]["method"])
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the source with the three additions."""
    root = tmp_path_factory.mktemp("recipes")
    for package in PACKAGES:
        shutil.copytree(
            REPOSITORY / package,
            root / package,
            ignore=shutil.ignore_patterns("__pycache__", "node_modules"),
        )
    catalogue = root / "lethe/catalogue.py"
    text = catalogue.read_text()
    for table, line in LINES.items():
        begin = text.index(f"\n{table}\n")
        end = text.index("\n)\n", begin)
        text = f"{text[:end]}\n    {line}{text[end:]}"
    catalogue.write_text(text)
    for name, content in FILES.items():
        (root / name).write_text(content)
    return root


def run(source: Path, *arguments: str) -> str:
    """Return what Python prints with the copy first on its path."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_files_each_add_a_method_a_check_and_an_event(source: Path) -> None:
    run(source, "-c", CHECKED)


def test_the_page_and_the_command_line_have_them_too(source: Path) -> None:
    page = run(source, "-m", "lethe.cli.main", "certificate", "catalogue")
    for name in ("planted", "planted-rank", "model.planted"):
        assert f"| `{name}` |" in page
