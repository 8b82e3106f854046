"""Tables of the documentation that repeat what the code says."""

import importlib
import pkgutil
import re
import tomllib
from collections.abc import Iterator

import pytest

import app
import models
from lethe.errors import LetheError
from models.types import METADATA
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
    statuses["body-invalid"] = 422  # what the wire types refuse, see app/api/problems.py
    section = re.search(
        r"(?ms)^## When the service says no$(.*?)^## ", read("docs/user-guide.md")
    )
    assert section is not None
    rows = re.findall(r"(?m)^\| (`[^|]+) \| ([\d, ]+) \|", section[1])
    assert len(rows) > 10
    for names, codes in rows:
        slugs = re.findall(r"`([^`]+)`", names)
        assert {statuses[slug] for slug in slugs} == {int(code) for code in codes.split(",")}


@pytest.mark.parametrize("table", sorted(METADATA.tables))
def test_every_table_is_in_the_architecture(table: str) -> None:
    assert models.__all__
    assert f"`{table}`" in read("docs/architecture.md")


def test_every_event_of_a_request_is_in_the_auditor_guide() -> None:
    sources = [*REPOSITORY.glob("app/**/*.py"), *REPOSITORY.glob("workers/**/*.py")]
    logged = {
        event
        for source in sources
        for event in re.findall(
            r'record_(?:request|model)_event\(\s*tx,\s*[\w.]+,\s*"([a-z.]+)"',
            source.read_text(),
        )
    }
    assert {"request.received", "request.certified", "model.version"} <= logged
    guide = read("docs/auditor-guide.md")
    assert not {event for event in logged if f"`{event}`" not in guide}
