"""The package: what may import Flower, what it is installed with, what the nodes receive."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.markdown import REPOSITORY

FLOWER = REPOSITORY / "flower"
APP = tomllib.loads((FLOWER / "pyproject.toml").read_text())
MODULES = sorted((FLOWER / "lethe_flower").glob("*.py"))
BOUND = {"client_app", "grid_exchange", "server_app"}  # to Flower; the check runs them


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def _first(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_only_the_edge_knows_flower(path: Path) -> None:
    names = _imports(path)
    assert ("flwr" in _first(names)) == (path.stem in BOUND)
    # What the nodes install is the base of lethe and torch: no service, no task, no numerics
    # beyond these.
    rooms = {".".join(name.split(".")[:3]) for name in names if name.startswith("workers")}
    assert rooms <= {
        "workers.errors",
        "workers.training.fedavg",
        "workers.training.networks",
        "workers.methods.network",
    }
    assert not _first(names) & {"app", "models", "migrations"}


def test_nothing_else_knows_the_room() -> None:
    foreign = re.compile(r"(?m)^\s*(from|import) (flwr|lethe_flower|flower_check)\b")
    assert foreign.search((FLOWER / "lethe_flower" / "server_app.py").read_text())
    for room in ("app", "workers", "models", "migrations"):
        for path in (REPOSITORY / room).rglob("*.py"):
            assert not foreign.search(path.read_text()), path


def test_numbers_are_computed_with_the_versions_that_are_tested() -> None:
    lines = (FLOWER / "requirements.txt").read_text().splitlines()
    pins = (REPOSITORY / "constraints.txt").read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in wanted if "==" in line] == [
        line for line in pins if line.startswith(("numpy==", "torch=="))
    ]
    assert [line for line in wanted if "==" not in line] == APP["project"]["dependencies"]


def test_the_components_exist() -> None:
    for reference in APP["tool"]["flwr"]["app"]["components"].values():
        module, name = reference.split(":")
        tree = ast.parse((FLOWER / (module.replace(".", "/") + ".py")).read_text())
        targets = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
        assert name in [target.id for target in targets if isinstance(target, ast.Name)]


def test_no_client_can_be_named_in_the_stored_configuration() -> None:
    """`flwr run` stores and lists it: it has only paths on the SuperLink's machine."""
    assert APP["tool"]["flwr"]["app"]["config"] == {"job": "", "out": ""}
