"""The template that fits are forked from: one per number of threads, and the fallback."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from workers.training.recipes import prepared
from workers.training.recipes.fit import FitRows
from workers.training.recipes.fit import fit as fit_here
from workers.training.recipes.process import FitError, Limits, fit
from workers.training.recipes.recipe import Recipe, RecipeStep

LIMITS = Limits(seconds=120, memory=4 << 30)
RECIPE = Recipe((RecipeStep("sklearn.naive_bayes.GaussianNB", {}),), 0, None)
FEATURES = np.random.default_rng(0).normal(size=(60, 4))
ROWS = FitRows(FEATURES, (FEATURES[:, 0] > 0).astype(np.int64))
EXPECTED = fit_here(RECIPE, ROWS, 1)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="templates need Linux: others start a process"
)


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    prepared.end_all()
    yield
    prepared.end_all()


def templates() -> list[int]:
    return [one.process.pid for one in prepared.TEMPLATES.values()]


def test_fits_are_forked_from_one_process_of_each_number_of_threads() -> None:
    spent = prepared.SPENT.seconds
    assert {fit(RECIPE, ROWS, threads, LIMITS) for threads in (1, 2, 1, 2)} == {EXPECTED}
    assert sorted(prepared.TEMPLATES) == [1, 2]
    first = templates()
    assert fit(RECIPE, ROWS, 1, LIMITS) == EXPECTED
    assert templates() == first
    assert prepared.SPENT.seconds > spent
    prepared.end_all()
    for pid in first:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_one_that_was_killed_is_started_again() -> None:
    fit(RECIPE, ROWS, 1, LIMITS)
    (pid,) = templates()
    os.kill(pid, signal.SIGKILL)
    assert fit(RECIPE, ROWS, 1, LIMITS) == EXPECTED
    assert fit(RECIPE, ROWS, 1, LIMITS) == EXPECTED  # the first may have met it dying
    assert templates() != [pid]


def test_one_that_stands_still_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer to the order that was given up would pass for that to the next one."""
    fit(RECIPE, ROWS, 1, LIMITS)
    (pid,) = templates()
    monkeypatch.setattr(prepared, "END_SECONDS", 0.1)
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(FitError, match="more than 1 s"):
        fit(RECIPE, ROWS, 1, Limits(seconds=1, memory=4 << 30))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert fit(RECIPE, ROWS, 1, LIMITS) == EXPECTED


def test_while_it_is_in_use_a_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    fit(RECIPE, ROWS, 1, LIMITS)
    asked = []
    start = subprocess.Popen

    def popen(command: list[str], **more: Any) -> Any:
        asked.append(command[2])
        return start(command, **more)

    monkeypatch.setattr(subprocess, "Popen", popen)
    with prepared.TEMPLATES[1].busy:
        assert fit(RECIPE, ROWS, 1, LIMITS) == EXPECTED
    assert fit(RECIPE, ROWS, 1, LIMITS) == EXPECTED
    assert asked == ["workers.training.recipes.child"]


def test_one_of_another_process_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a worker has forked: two would read from one socket."""
    fit(RECIPE, ROWS, 1, LIMITS)
    (found,) = prepared.TEMPLATES.values()
    found.owner = os.getpid() + 1
    assert fit(RECIPE, ROWS, 1, LIMITS) == EXPECTED
    assert templates() != [found.process.pid]
    assert found.process.poll() is None  # it is not ended either
    found.end()


@pytest.mark.parametrize("planted", ["no such module", "no word"])
def test_where_none_starts_a_process_is_started(
    planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "START_SECONDS", 0.0 if planted == "no word" else 60)
    if planted == "no such module":
        monkeypatch.setattr(prepared, "READY", b"?")
    assert fit(RECIPE, ROWS, 1, LIMITS) == EXPECTED
    assert templates() == []


def test_an_answer_of_a_process_that_died_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = b"+" + len(EXPECTED).to_bytes(8, "big") + EXPECTED
    monkeypatch.setattr(prepared, "answer", lambda *_: (whole, 0))
    assert fit(RECIPE, ROWS, 1, LIMITS) == EXPECTED
    monkeypatch.setattr(prepared, "answer", lambda *_: (whole, -9))
    with pytest.raises(FitError, match="signal 9"):
        fit(RECIPE, ROWS, 1, LIMITS)
