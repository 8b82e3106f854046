"""Probes count the lines that coverage.py's own tracer counts."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import coverage
import pytest

from lethe import canonical
from tests import probes

REPOSITORY = Path(__file__).resolve().parent.parent

SAMPLE = '''\
"""A module."""

from __future__ import annotations

import contextlib
from dataclasses import (
    dataclass,
    field,
)


def twice(function):
    """Decorate."""
    return function


@dataclass(
    frozen=True,
)
class Pair:
    """A class."""

    first: int
    second: list[int] = field(
        default_factory=list,
    )

    @property
    @twice
    def total(self):
        if self.first > 100:
            return 0
        elif self.first > 10:
            value = 1
        else:
            value = 2
        return (
            value
            + sum(
                one
                for one in self.second
            )
        )

    def never(self):
        return [
            1,
        ]


def walk(values):
    found = []
    for value in values:
        if value == 2:
            continue
        try:
            found.append(1 / value)
        except ZeroDivisionError:
            found.append(None)
        else:
            found.append(0)
        finally:
            found.append("x")
    else:
        found.append("end")
    while True:
        with contextlib.suppress(ValueError):
            raise ValueError
        break
    match len(found):
        case 6:
            found.append("six")
        case _:
            found.append("others")
    return found


async def later():
    async with contextlib.AsyncExitStack():
        yield 1


walk([0, 1, 2])
pair = Pair(11, [1, 2]); pair.total
if pair.first == 12:
    raise SystemExit
'''


def _lines(path: Path, run: Callable[[coverage.Coverage], object]) -> set[int]:
    measured = coverage.Coverage(data_file=None, config_file=False, include=[str(path)])
    run(measured)
    _, statements, _, missing, _ = measured.analysis2(str(path))
    assert missing
    return set(statements) - set(missing)


@pytest.fixture(autouse=True)
def own_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the files of these tests, soon gone, out of what this process records at its end."""
    monkeypatch.setattr(probes, "HITS", {})
    monkeypatch.setattr(probes, "LINES", {})


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE)
    return path


def test_the_lines_are_those_of_the_tracer(sample: Path) -> None:
    def trace(measured: coverage.Coverage) -> None:
        with measured.collect():
            exec(compile(SAMPLE, str(sample), "exec"), {"__name__": __name__})

    def probe(measured: coverage.Coverage) -> None:
        exec(probes.compiled(SAMPLE, str(sample)), {"__name__": __name__})
        measured.get_data().add_lines({str(sample): probes.ran(str(sample))})

    assert _lines(sample, probe) == _lines(sample, trace)


def test_what_ran_is_in_the_data_of_coverage(tmp_path: Path) -> None:
    data, script = tmp_path / "data", tmp_path / "script.py"
    script.write_text("import tests\nfrom lethe import canonical\ncanonical.encode({})\n")
    options = ["--source=lethe", f"--data-file={data}"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
    subprocess.run(
        [sys.executable, "-m", "coverage", "run", "--rcfile=", *options, script],
        env={**environment, "PYTHONPATH": str(REPOSITORY)},
        check=True,
    )
    found = coverage.CoverageData(str(data))
    found.read()
    lines = found.lines(canonical.__file__)
    assert lines is not None
    assert _body(canonical.encode) & set(lines)
    assert not _body(canonical.decode) & set(lines)


def _body(function: Callable[..., object]) -> set[int]:
    """Return the lines of a function's statements, without its `def`."""
    code = function.__code__
    return {line for _, _, line in code.co_lines() if line} - {code.co_firstlineno}


def test_only_the_products_own_modules_have_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SourceFileLoader, "get_code", SourceFileLoader.get_code)
    probes.probe(tmp_path)
    for path in (tmp_path / "lethe" / "own.py", tmp_path / "lethe_other.py"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("a = 1\n")
        spec = spec_from_file_location(path.stem, path)  # as Alembic loads its revisions
        assert spec is not None
        assert spec.loader is not None
        module: Any = module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.a == 1
        assert hasattr(module, "__probes__") is (path.stem == "own")
