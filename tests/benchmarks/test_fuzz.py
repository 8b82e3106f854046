"""A short run of every fuzzer, and that a fuzzer finds what is broken on purpose."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.fuzz import engine
from benchmarks.fuzz.mutate import as_json, as_lines, as_tensors, as_zip, plain
from benchmarks.fuzz.target import Target
from tests.small import pack, rows

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)
def test_no_parser_raises_anything_but_its_refusal(tmp_path: Path) -> None:
    report = tmp_path / "fuzz.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fuzz", "--runs", "300", "--json", str(report)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(report.read_text())
    assert len(results) > 50
    assert {one["runs"] for one in results} == {300}


def careless(data: bytes) -> object:
    """A parser that forgets an error."""
    try:
        return json.loads(data)["a"]
    except ValueError:
        raise KeyError from None


def fuzzed(read: object, runs: int = 400) -> engine.Found:
    target = Target("planted", read, lambda: [b'{"a":1}'], (KeyError,), (as_json, plain))  # type: ignore[arg-type]
    return engine.fuzz(target, runs)


def test_an_error_that_is_no_refusal_is_found() -> None:
    found = fuzzed(careless)
    assert found.runs == 400
    assert any(where.startswith("TypeError") for where in found.crashes), found.crashes
    assert any(where.startswith("RecursionError") for where in found.crashes), found.crashes


def test_an_input_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "HANG_S", 0.2)

    def slow(data: bytes) -> None:
        if data != b'{"a":1}':
            time.sleep(5)

    found = fuzzed(slow, runs=1)
    assert [where for where in found.crashes if "hangs" in where]


def test_memory_without_bound_is_found() -> None:
    def greedy(data: bytes) -> None:
        if data != b'{"a":1}':
            bytearray(2 * engine.MEMORY_BYTES)  # more than any that was given back

    found = fuzzed(greedy, runs=20)
    assert any(where.startswith("MemoryError") for where in found.crashes), found.crashes


def test_a_process_that_dies_is_found() -> None:
    def deadly(data: bytes) -> None:
        if data != b'{"a":1}':
            os._exit(3)

    assert list(fuzzed(deadly, runs=20).crashes) == ["the process died: status 768"]


@pytest.mark.parametrize("mutator", [plain, as_json, as_zip, as_tensors, as_lines])
def test_mutations_repeat_and_differ(mutator: object) -> None:
    for data in (b'{"a":[1,"x"]}', pack(rows()), b"", b"a\nb\n"):
        made = [mutator(random.Random(seed), data, [data]) for seed in range(60)]  # type: ignore[operator]
        assert made == [mutator(random.Random(seed), data, [data]) for seed in range(60)]  # type: ignore[operator]
        assert len(set(made)) > 5
