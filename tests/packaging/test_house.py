"""What keeps the house easy to walk: no circle of files, one name one class, no switch by name.

import-linter checks the order of the rooms (pyproject.toml); this checks the files in them.
What is left of old circles and names stands below with its reason. The lists only get shorter.
"""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import get_args

import pytest

from lethe.catalogue import DATA, METHODS, ModelKind

REPOSITORY = Path(__file__).parents[2]
Files = dict[str, ast.Module]
PACKAGES = ("lethe", "app", "workers", "models")

CIRCLES_LEFT: dict[tuple[str, ...], str] = {}
NAMES_LEFT: dict[str, str] = {}

# Families, methods and kinds of data: lethe/catalogue.py and the manifest of a family describe
# them, and everything else asks for a property of that description.
DESCRIBED = METHODS.keys() | DATA.keys() | set(get_args(ModelKind))
DESCRIBE = ("lethe.catalogue", "lethe.estimators.", "app.schemas.families.")
ASK = ("lethe.", "app.", "workers.jobs.")
STEP = re.compile(r"\b(step|state)\b")  # of a round: one of them is called masked
# In tests: own members, and private names that other libraries document or offer no other way to.
OWN = ("self", "cls", "os", "sys")
LIBRARIES = ("_replace", "_asdict", "_transport", "_compiled_cache", "_attributes", "_fields_")
SWITCHES_LEFT = {
    "app.vault.master": "has_noise reads the settings of the two methods that add noise",
}


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


def switches(files: Files) -> dict[str, list[str]]:
    """Return comparisons with the name of a family, a method or a kind of data, by module."""
    asking = (
        one for one in files if f"{one}.".startswith(ASK) and not one.startswith(DESCRIBE)
    )
    found = {one: list(comparisons(files[one])) for one in asking}
    return {name: asked for name, asked in found.items() if asked}


def comparisons(file: ast.Module) -> Iterator[str]:
    """Yield what compares with such a name, spelled there or as a constant of the module."""
    constants: dict[str, set[object]] = {}
    node: ast.AST
    for node in file.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names_of = (
                n.id for one in targets for n in ast.walk(one) if isinstance(n, ast.Name)
            )
            constants |= dict.fromkeys(names_of, literals(node.value, {}))
    for node in ast.walk(file):
        sides: list[ast.expr] = []
        if isinstance(node, ast.Compare) and not STEP.search(ast.unparse(node.left)):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            sides = [node.value]
        if any(literals(side, constants) & DESCRIBED for side in sides):
            yield ast.unparse(node)


def literals(side: ast.expr, constants: dict[str, set[object]]) -> set[object]:
    """Return the constants of an expression: its own, a named one, or those of a tuple."""
    if isinstance(side, ast.Constant):
        return {side.value}
    if isinstance(side, ast.Name):
        return constants.get(side.id, set())
    if isinstance(side, ast.Tuple | ast.List | ast.Set):
        return set().union(*(literals(one, constants) for one in side.elts))
    return set()


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


def test_nothing_asks_for_a_family_method_or_kind_of_data_by_name(files: Files) -> None:
    found = switches(files)
    new = {name: asked for name, asked in found.items() if name not in SWITCHES_LEFT}
    assert new == {}, "ask for a property of its description"
    assert SWITCHES_LEFT.keys() - found.keys() == set(), "gone: take it off the list"


@pytest.mark.parametrize(
    "text",
    [
        'if model.config["data"] == "masked": ...',
        'if where in ("rows", "statistics"): ...',
        'SKETCHED = "ridge-sketched"\nsketches = method == SKETCHED',
        'refit = "retrain" if "retrain" in offered else "refit"',
        'match family:\n    case "network": ...',
    ],
    ids=["data", "several", "constant", "in", "match"],
)
def test_a_planted_switch_is_seen(text: str) -> None:
    planted = parsed(dict.fromkeys(("app.planted", "lethe.planted"), text))
    assert switches(planted).keys() == planted.keys()
    assert switches(parsed({"app.schemas.families.planted": text})) == {}
    assert switches(parsed({"app.rounds.planted": 'if row.state == "masked": ...'})) == {}


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


def private_uses(file: ast.Module) -> Iterator[str]:
    """Yield the private names of others that a test imports, reads or replaces.

    Not those of its own classes, and not the public methods of a named tuple.
    """
    for node in ast.walk(file):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module.partition(".")[0] in (*PACKAGES, "migrations", "benchmarks"):
                yield from (one.name for one in node.names if is_private(one.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in OWN):
                yield node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("attr", "patch")):
            for one in node.args:
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    name = one.value.rpartition(".")[2]
                    yield from [name] if is_private(name) else []


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in LIBRARIES


def test_tests_use_public_names_only() -> None:
    """A private name may change without a test of behaviour noticing, and should."""
    tests = (REPOSITORY / "tests").rglob("*.py")
    found = {path.name: [*private_uses(ast.parse(path.read_text()))] for path in tests}
    assert {name: uses for name, uses in found.items() if uses} == {}


@pytest.mark.parametrize(
    "planted",
    [
        "from app.vault.artifacts import _find",
        "store._journal.close()",
        'monkeypatch.setattr(gather, "_waited", None)',
        'monkeypatch.setattr("app.witnesses.gather._waited", None)',
    ],
)
def test_a_private_name_in_a_test_is_found(planted: str) -> None:
    assert [*private_uses(ast.parse(planted))]
    assert not [*private_uses(ast.parse("self._mine = row._asdict()"))]
