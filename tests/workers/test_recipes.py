"""The recipes of docs/development.md: a method, a check and a log event are two files each.

Each is added to a copy of the source, as its catalogue line and its own file; so are a family of
models and a resource of the API, with the lines that their recipes name. Then everything
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
from workers.judge.ridge.chain import FURTHER

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
# A family's and a resource's lines: file, what they follow, and the line.
ENTRIES = (
    ("lethe/catalogue.py", '"sums", "vectors"', ', "planted-family"'),
    (
        "lethe/catalogue.py",
        '        "sums": _REFITTED,\n',
        '        "planted-family": _REFITTED,\n',
    ),
    (
        "workers/families/base.py",
        "Mapping[str, str] = MappingProxyType(\n    {\n",
        '        "planted-family": "workers.families.planted.family",\n',
    ),
    (
        "app/schemas/families/manifests.py",
        "from app.schemas.families.networks import NewNetwork\n",
        "from app.schemas.families.planted import NewPlanted\n",
    ),
    ("app/schemas/families/manifests.py", "NewModel | ", "NewPlanted | "),
    (
        "app/schemas/families/manifests.py",
        '        "ridge": NewModel,\n',
        '        "planted-family": NewPlanted,\n',
    ),
    ("app/main.py", "from app.api import (\n", "    plants,\n"),
    ("app/main.py", "ROUTES = (\n", "    plants,\n"),
    (
        "app/api/http/openapi.py",
        "RAISED: dict[str, tuple[Problem, ...]] = {\n",
        '    "getPlant": _UNKNOWN,\n',
    ),
)
FILES |= {
    "workers/families/planted/__init__.py": '"""A family of a test."""\n',
    "workers/families/planted/family.py": '''
from workers.families.sums.family import SumsFamily

class PlantedFamily(SumsFamily):
    """Sums under another name."""

FAMILY = PlantedFamily()
''',
    "app/schemas/families/planted.py": '''
from typing import Literal
from app.schemas.families.sums import NewSums

class NewPlanted(NewSums):
    """The manifest of a family of a test."""
    family: Literal["planted-family"]
''',
    "app/schemas/plants.py": '''
from app.schemas.base import Wire

class PlantView(Wire):
    """A plant, on the wire."""
    name: str
''',
    "app/service/plants.py": '''
from app.problems import NotFoundError
from app.schemas.plants import PlantView

def show(name):
    """Return a plant. Raises NotFoundError."""
    if name != "oak":
        raise NotFoundError("there is no such plant")
    return PlantView(name=name)
''',
    "app/api/plants.py": '''
from fastapi import APIRouter
from app.api.http.strict import StrictRoute
from app.schemas.plants import PlantView
from app.service import plants

router = APIRouter(prefix="/v1/plants", tags=["plants"], route_class=StrictRoute)

@router.get("/{name}", operation_id="getPlant")
def show(name: str) -> PlantView:
    """Show a plant."""
    return plants.show(name)
''',
}
ADDED = """
import lethe, os
assert lethe.__file__.startswith(os.getcwd()), lethe.__file__

import json
from lethe.catalogue import CHECKS_OF
from workers.families import base
from app.schemas.families.manifests import MANIFESTS

manifest = {
    "family": "planted-family", "ref": "m", "columns": 2,
    "sums": {"estimator": "ridge-regressor"},
}
pinned = MANIFESTS["planted-family"].model_validate(manifest).pinned()
family = base.configured(pinned["config"])
assert type(family).__name__ == "PlantedFamily", family
assert family in list(base.every())
assert "re-execution" in CHECKS_OF["planted-family"]

from fastapi import FastAPI
from fastapi.testclient import TestClient
from app.api import plants
from app.api.http import problems
from app.main import described

document = described()
assert "planted-family" in json.dumps(document["components"]["schemas"]["NewPlanted"])
assert document["paths"]["/v1/plants/{name}"]["get"]["operationId"] == "getPlant"
api = FastAPI()
api.include_router(plants.router)
problems.install(api)
http = TestClient(api)
assert http.get("/v1/plants/oak").json() == {"name": "oak"}
absent = http.get("/v1/plants/elm")
assert (absent.status_code, absent.json()["detail"]) == (404, "there is no such plant"), absent
"""
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
    """Return a copy of the source with the additions."""
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
    for name, follows, line in ENTRIES:
        text = (root / name).read_text()
        assert follows in text, (name, follows)
        (root / name).write_text(text.replace(follows, follows + line, 1))
    for name, content in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
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


def test_a_family_and_a_resource_are_what_their_recipes_say(source: Path) -> None:
    run(source, "-c", ADDED)


def test_the_page_and_the_command_line_have_them_too(source: Path) -> None:
    page = run(source, "-m", "lethe.cli.main", "certificate", "catalogue")
    for name in ("planted", "planted-rank", "model.planted"):
        assert f"| `{name}` |" in page
