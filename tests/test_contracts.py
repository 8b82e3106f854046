"""Each rule on imports in pyproject.toml goes red on an import that breaks it."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter.application import use_cases
from importlinter.configuration import configure
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import Contract

ROOT = Path(__file__).parents[1]
LAYER = "|:"  # what separates the modules of one layer
TYPES: dict[str, type[Contract]] = {
    "acyclic_siblings": AcyclicSiblingsContract,
    "forbidden": ForbiddenContract,
    "layers": LayersContract,
}


@cache
def _read() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    configure()
    found = use_cases.read_user_options(str(ROOT / "pyproject.toml"))
    return found.session_options, found.contracts_options


@cache
def _graph() -> grimp.ImportGraph:
    session, _ = _read()
    return grimp.build_graph(
        *session["root_packages"], include_external_packages=True, cache_dir=None
    )


def _contract(options: dict[str, Any]) -> Contract:
    return TYPES[options["type"]](
        name=options["name"], session_options=_read()[0], contract_options=options
    )


def _within(graph: grimp.ImportGraph, package: str) -> str:
    """Return a module in a package, or the module itself."""
    return min(graph.find_children(package), default=package)


def _plant(graph: grimp.ImportGraph, options: dict[str, Any]) -> None:
    """Add the imports that the contract forbids."""
    if options["type"] == "forbidden":
        pairs = [
            (_within(graph, options["source_modules"][0]), options["forbidden_modules"][0])
        ]
    elif options["type"] == "layers":
        (container,) = options["containers"]
        high, low = (
            layer.translate(str.maketrans(LAYER, "  ")).split()[0]
            for layer in (options["layers"][0], options["layers"][-1])
        )
        pairs = [(f"{container}.{low}", f"{container}.{high}")]
    else:
        one, other = sorted(graph.find_children(options["ancestors"][0]))[:2]
        pairs = [(one, other), (other, one)]
    for importer, imported in pairs:
        if imported not in graph.modules:
            graph.add_module(imported, is_squashed=True)
        graph.add_import(importer=importer, imported=imported)


@pytest.mark.parametrize("options", _read()[1], ids=lambda one: one["name"])
def test_a_forbidden_import_is_found(options: dict[str, Any]) -> None:
    graph = deepcopy(_graph())
    contract = _contract(options)
    assert contract.check(deepcopy(graph), verbose=False).kept
    _plant(graph, options)
    assert not contract.check(graph, verbose=False).kept


@pytest.mark.parametrize(
    ("name", "importer", "imported"),
    [
        (
            "the workers are built in layers",
            "workers.families.ridge.family",
            "workers.jobs.publish",
        ),
        (
            "the workers are built in layers",
            "workers.families.base",
            "workers.method_audits.trust",
        ),
        ("the workers are built in layers", "workers.lineage.versions", "workers.cases.case"),
        (
            "a family is known by its registry alone",
            "workers.jobs.joint",
            "workers.families.masked.rounds",
        ),
        (
            "a family is known by its registry alone",
            "workers.leases.lease",
            "workers.families.ridge.family",
        ),
    ],
)
def test_an_import_between_engine_and_families_is_found(
    name: str, importer: str, imported: str
) -> None:
    (options,) = (one for one in _read()[1] if one["name"] == name)
    graph = deepcopy(_graph())
    graph.add_import(importer=importer, imported=imported)
    assert not _contract(options).check(graph, verbose=False).kept


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("workers.families.network.data", "workers.families.network.scores"),
        ("workers.jobs.execute", "workers.jobs.sweep"),
        ("app.service.desk", "app.service.issued"),
    ],
)
def test_a_circle_of_rooms_is_found(one: str, other: str) -> None:
    (options,) = (found for found in _read()[1] if found["type"] == "acyclic_siblings")
    graph = deepcopy(_graph())
    for importer, imported in ((one, other), (other, one)):
        graph.add_import(importer=_within(graph, importer), imported=_within(graph, imported))
    assert not _contract(options).check(graph, verbose=False).kept
