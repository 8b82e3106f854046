"""Which tests `make test` runs: together they reach nearly what all of them reach.

A newcomer waits five minutes, not forty. A test is quick if it is chosen from a recording of
all: each adds statements of the product that the others do not reach, for the least time.
`quick.txt` names them; `make coverage` runs all, and `make test-full` what needs more than one
process.

    make coverage ARGS="-p tests.quick"         # records what each test reaches
    python -m tests.quick                       # writes quick.txt
"""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from pathlib import Path
from typing import Any

import pytest

from tests.probes import HITS

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".txt")
RECORDED = ROOT / "build" / "quick"
SECONDS = 250.0  # of all chosen tests together, when they were recorded

Reached = dict[str, int]  # by module: a bit for each probe that ran

_all: Reached = defaultdict(int)
_recorded: list[dict[str, Any]] = []
_seconds: dict[str, float] = defaultdict(float)
_failed: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note what one test reaches, its fixtures included."""
    _take()
    result = yield
    reached = {os.path.relpath(path, ROOT): f"{bits:x}" for path, bits in _take().items()}
    _recorded.append({"test": item.nodeid, "reached": reached})
    return result


def _take() -> Reached:
    """Return which probes ran since the last call; `_all` has those of all calls."""
    ran: Reached = {}
    for path, hits in HITS.items():
        if 1 in hits:
            ran[path] = int("".join(map(str, reversed(hits))), 2)
            _all[path] |= ran[path]
            hits[:] = bytes(len(hits))
    return ran


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how long a test took, and if it did not pass: of such a test nothing is known."""
    _seconds[report.nodeid] += report.duration
    if not report.passed:
        _failed.add(report.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Write what this process noted, and leave to the measurement what ran."""
    _take()
    for path, bits in _all.items():
        HITS[path][:] = map(int, reversed(f"{bits:0{len(HITS[path])}b}"))
    if _recorded:
        RECORDED.mkdir(parents=True, exist_ok=True)
        rows = [
            {**one, "seconds": _seconds[one["test"]]}
            for one in _recorded
            if one["test"] not in _failed
        ]
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        (RECORDED / f"{worker}.json").write_text(json.dumps(rows))


def chosen(
    reached: Mapping[str, Reached], seconds: Mapping[str, float], most: float
) -> list[str]:
    """Return tests that reach as much of what all reach as `most` seconds allow.

    The one that adds most statements for its time comes first: a greedy cover.
    """
    known: Reached = defaultdict(int)
    taken, spent = [], 0.0

    def rank(name: str) -> tuple[float, str]:
        return -_added(reached[name], known) / seconds[name], name

    ranks = [rank(name) for name in reached]
    heapify(ranks)
    while ranks:
        _, best = ranks[0]
        now = rank(best)
        if now[0] == 0 or spent + seconds[best] > most:
            heappop(ranks)
        elif now > ranks[0]:  # what it adds only shrinks: the others need no second look
            heapreplace(ranks, now)
        else:
            heappop(ranks)
            taken.append(best)
            spent += seconds[best]
            for path, bits in reached[best].items():
                known[path] |= bits
    return _without_repeats(taken, reached, seconds)


def _without_repeats(
    taken: list[str], reached: Mapping[str, Reached], seconds: Mapping[str, float]
) -> list[str]:
    """Return what is left once all that others reach too is dropped, the slowest first."""
    by_path: dict[str, dict[str, int]] = defaultdict(dict)
    for name in taken:
        for path, bits in reached[name].items():
            by_path[path][name] = bits
    twice = {path: _twice(each.values()) for path, each in by_path.items()}
    for name in sorted(taken, key=lambda one: (-seconds[one], one)):
        if _added(reached[name], twice):
            continue
        taken.remove(name)
        for path in reached[name]:
            del by_path[path][name]
            twice[path] = _twice(by_path[path].values())
    return taken


def _twice(each: Iterable[int]) -> int:
    """Return the bits that two or more of these have."""
    once = twice = 0
    for bits in each:
        once, twice = once | bits, twice | once & bits
    return twice


def _added(reached: Reached, known: Mapping[str, int]) -> int:
    return sum((bits & ~known.get(path, 0)).bit_count() for path, bits in reached.items())


def main() -> None:
    """Write the list, and say what it reaches in what time."""
    reached: dict[str, Reached] = {}
    seconds: dict[str, float] = {}
    for file in sorted(RECORDED.glob("*.json")):
        for row in json.loads(file.read_text()):
            reached[row["test"]] = {
                path: int(bits, 16) for path, bits in row["reached"].items()
            }
            seconds[row["test"]] = max(row["seconds"], 1e-3)
    taken = chosen(reached, seconds, SECONDS)
    LIST.write_text("".join(f"{name}\n" for name in sorted(taken)))
    all_, some = _together(reached.values()), _together(reached[name] for name in taken)
    sys.stdout.write(
        f"{len(taken)} of {len(reached)} tests reach {100 * some / all_:.1f} % of the statements "
        f"in {sum(seconds[name] for name in taken):.0f} of {sum(seconds.values()):.0f} s\n"
    )


def _together(each: Iterable[Reached]) -> int:
    known: Reached = defaultdict(int)
    for reached in each:
        for path, bits in reached.items():
            known[path] |= bits
    return sum(bits.bit_count() for bits in known.values())


if __name__ == "__main__":
    main()
