"""What keeps the house easy to walk: no file imports in a circle, and one name is one class.

import-linter checks the order of the rooms (pyproject.toml); this checks the files in them.
What is left of old circles and names stands below with its reason. The lists only get shorter.
"""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
Files = dict[str, ast.Module]
PACKAGES = ("lethe", "app", "workers", "models")

CIRCLES_LEFT: dict[tuple[str, ...], str] = {}
NAMES_LEFT: dict[str, str] = {}


def sources() -> Files:
    """Return every file, parsed, by its module's name."""
    found: Files = {}
    for path in (path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")):
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_text())
    return found


def imports(name: str, file: ast.Module, known: Files) -> set[str]:
    """Return the known modules that a file imports.

    Also those that it imports late, or for types alone: either hides a circle and undoes none.
    """
    found = set()
    for node in ast.walk(file):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: import by the full name"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {one if one in known else str(node.module) for one in inner}
    return (found & known.keys()) - {name}


def circles(files: Files) -> Iterator[tuple[str, ...]]:
    """Yield circles of imports until none is left, each from its first name on."""
    graph = {name: imports(name, file, files) for name, file in files.items()}
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            ring = error.args[1][:-1]
            start = ring.index(min(ring))
            yield tuple(ring[start:] + ring[:start])
            for one in ring:
                graph[one] -= set(ring)
        else:
            return


def names(files: Files) -> dict[str, list[str]]:
    """Return the public classes that several files of a package define, with the files."""
    found: dict[str, list[str]] = {}
    for name, file in files.items():
        for node in file.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(f"{name.partition('.')[0]}.{node.name}", []).append(name)
    return {name: homes for name, homes in found.items() if len(homes) > 1}


@pytest.fixture(scope="module")
def files() -> Files:
    return sources()


def test_no_file_imports_in_a_circle(files: Files) -> None:
    found = {tuple(sorted(ring)) for ring in circles(files)}
    assert found - CIRCLES_LEFT.keys() == set(), "move what both need into a third file"
    assert CIRCLES_LEFT.keys() - found == set(), "gone: take it off the list"


def test_a_public_name_is_one_class_of_its_package(files: Files) -> None:
    found = names(files)
    assert {n: h for n, h in found.items() if n not in NAMES_LEFT} == {}, "rename one of them"
    assert NAMES_LEFT.keys() - found.keys() == set(), "gone: take it off the list"


@pytest.mark.parametrize(
    "text",
    [
        "from lethe.log import tree",
        "import lethe.log.tree",
        "def late() -> None:\n    from lethe.log.tree import leaf_hash",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lethe.log import tree",
    ],
    ids=["a module", "by its name", "late", "for types"],
)
def test_a_planted_circle_is_seen(files: Files, text: str) -> None:
    tree = ast.unparse(files["lethe.log.tree"]) + "\nfrom lethe.log import planted\n"
    log = {name: file for name, file in files.items() if name.startswith("lethe.log.")}
    assert list(circles(log)) == []
    planted = log | parsed({"lethe.log.tree": tree, "lethe.log.planted": text})
    assert list(circles(planted)) == [("lethe.log.planted", "lethe.log.tree")]


def test_a_longer_circle_is_seen() -> None:
    ring = {"app.a": "import app.b", "app.b": "import app.c", "app.c": "import app.a, app.d"}
    (found,) = circles(parsed(ring | {"app.d": ""}))
    assert sorted(found) == ["app.a", "app.b", "app.c"]


def test_a_planted_name_is_seen_in_its_package_alone(files: Files) -> None:
    twice = {"lethe.log.planted": "class Client: ...", "app.planted": "class Client: ..."}
    assert names(files | parsed(twice)).keys() - NAMES_LEFT.keys() == {"lethe.Client"}
    hidden = {"app.a": "class _Hidden: ...", "app.b": "class _Hidden: ..."}
    assert names(parsed(hidden)) == {}


def parsed(texts: dict[str, str]) -> Files:
    return {name: ast.parse(text) for name, text in texts.items()}
