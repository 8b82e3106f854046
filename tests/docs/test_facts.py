"""Tables of the documentation that repeat what the code says."""

import ast
import importlib
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import app
import models
from lethe.catalogue import EVENTS
from lethe.cli.text.catalogue import catalogue_lines
from lethe.errors import LetheError
from models.database.types import METADATA
from tests.docs.markdown import REPOSITORY, read

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def _errors(root: type[LetheError]) -> Iterator[type[LetheError]]:
    for error in root.__subclasses__():
        yield error
        yield from _errors(error)


def test_the_import_rules_are_those_that_are_checked() -> None:
    section = re.search(r"(?ms)^## Import rules$(.*?)^## ", read("docs/architecture.md"))
    assert section is not None
    documented = re.findall(r"(?m)^\| ([^|]+?) \| ", section[1])[1:]
    checked = [contract["name"] for contract in PROJECT["tool"]["importlinter"]["contracts"]]
    assert documented == checked


def test_the_problems_of_the_user_guide_are_raised_with_that_status() -> None:
    for module in pkgutil.walk_packages(app.__path__, "app."):
        importlib.import_module(module.name)
    statuses = {error.slug: error.status for error in _errors(LetheError)}
    statuses["body-invalid"] = 422  # what the wire types refuse, see app/api/http/problems.py
    section = re.search(r"(?ms)^## Error responses$(.*?)^## ", read("docs/user-guide.md"))
    assert section is not None
    rows = re.findall(r"(?m)^\| (`[^|]+) \| ([\d, ]+) \|", section[1])
    assert len(rows) > 10
    for names, codes in rows:
        slugs = re.findall(r"`([^`]+)`", names)
        assert {statuses[slug] for slug in slugs} == {int(code) for code in codes.split(",")}


@pytest.mark.parametrize("table", sorted(METADATA.tables))
def test_every_table_is_in_the_architecture(table: str) -> None:
    assert models.Model.metadata is METADATA  # imported, it registers every table
    assert f"`{table}`" in read("docs/architecture.md")


def _walked() -> list[tuple[str, str]]:
    """Return each file and function of the erasure that the architecture page follows."""
    section = re.search(
        r"(?ms)^## One ridge erasure through the code$(.*?)^## ", read("docs/architecture.md")
    )
    assert section is not None
    return re.findall(r"(?m)^\| \w* ?\| `([^`]+)` \| `([^`]+)` \|", section[1])


def test_the_walk_goes_from_the_request_to_the_offline_verifier() -> None:
    walked = _walked()
    assert walked[0] == ("app/api/http/deps.py", "signed_submission")
    assert walked[-1] == ("lethe/certificates/verify.py", "verify_certificate")
    assert len(walked) > 20


@pytest.mark.parametrize(("file", "function"), _walked())
def test_each_function_of_the_walk_is_in_its_file(file: str, function: str) -> None:
    tree = ast.parse((REPOSITORY / file).read_text())
    assert function in {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_the_catalogue_page_is_what_the_command_prints() -> None:
    page = "\n".join(catalogue_lines()) + "\n"
    assert read("docs/catalogue.md") == page, "lethe certificate catalogue > docs/catalogue.md"


def test_every_event_is_recorded_somewhere_and_no_other() -> None:
    recorded: set[str] = set()
    sites = 0
    for path in [*REPOSITORY.glob("app/**/*.py"), *REPOSITORY.glob("workers/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _called(node) in RECORDERS:
                sites += 1
                place = RECORDERS[_called(node)]
                recorded |= _names(node.args[place], path)
    assert sites > 40
    assert recorded == EVENTS.keys()


# Which argument of a function that records an event is its name.
RECORDERS = {
    "record_request_event": 2,
    "append_request_event": 3,
    "record_model_event": 2,
    "record_key_event": 2,
    "record_service_key_event": 1,
    "record_master_key_event": 1,
    "record_hold_event": 2,
    "record_retention_event": 1,
    "record_end": 4,
    "close": 4,
}


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _names(given: ast.expr, path: Path) -> set[str]:
    """Return the events that an argument can be: a constant, or a name of the module's."""
    if isinstance(given, ast.Constant):
        name = str(given.value)
        return {name if "." in name else f"request.{name}"}
    if isinstance(given, ast.JoinedStr) or ast.unparse(given) in ("event", "state"):
        return set()  # handed on by a function of RECORDERS or to `close`
    module = importlib.import_module(
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
    )
    return {str(getattr(module, ast.unparse(given)))}
