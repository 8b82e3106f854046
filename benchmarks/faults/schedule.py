"""Which faults are injected: each site in each way first, then later calls of each site."""

import argparse
import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TypeVar

from benchmarks.faults.case import Case
from benchmarks.faults.layer import MODES, PERSISTED, ROOMS, ROOT, Fault

Calls = Mapping[str, Mapping[str, int]]  # of each workload, how often each site is called
# What becomes durable, or public: twice as interesting with a second process beside.
BESIDE = ("commit", "rename", "write")
PAIRED = ("killed", "persisted", "failed", "frozen")
LATER = 6  # calls of one site that are struck one after the other
Part = tuple[int, int]  # (k, n): every n-th case, from the k-th on; counted from 1
ALONE = ("withdraw",)  # workloads that a second process would end otherwise
# Their files are written while no transaction is open: the database makes no difference.
APART = (
    "app/backup/",
    "app/reconcile/fsck/state.py",
    "lethe/",
    "workers/secure_sum/client/",
)
OF_DATABASE = ("begin", "statement", "commit")
# Every second pair of cases, until each call of these kinds has failed in both of these ways.
DURABLE, BOTH_WAYS = ("write", "fsync", "rename", "commit"), ("failed", PERSISTED)


T = TypeVar("T")


def parse_part(text: str) -> Part:
    """Return K and N of "K/N", for a command line. Raises argparse.ArgumentTypeError."""
    number, _, parts = text.partition("/")
    if not 1 <= int(number) <= int(parts):
        raise argparse.ArgumentTypeError("not K/N with 1 <= K <= N")
    return int(number), int(parts)


def every(cases: Iterable[T], part: Part) -> Iterator[T]:
    """Yield one part of the cases; the n parts of them have each case once."""
    number, parts = part
    return islice(cases, number - 1, None, parts)


def differing(sites: Mapping[str, int]) -> dict[str, int]:
    """Return the sites that are struck on each kind of database, not on SQLite alone."""
    return {
        site: number
        for site, number in sites.items()
        if site.startswith(OF_DATABASE) or not site.split()[1].startswith(APART)
    }


def schedule(calls: Calls) -> Iterator[Case]:
    """Yield every case, the ones that cover most first; no two are equal.

    Two processes at once; each site in each mode, in the first workload that reaches it, and
    what becomes durable in BOTH_WAYS as often as all others until it is over; the same with a
    second process beside; then in the other workloads; then later calls.
    """
    yield from (Case(name, None, beside=True) for name in calls if name not in ALONE)
    for nth in range(1, LATER + 1):
        alone, elsewhere = _once(list(_at(calls, nth, beside=False)))
        beside = _once(list(_at(calls, nth, beside=True)))
        durable = [case for case in alone if _is_durable(case)]
        others = [case for case in alone if not _is_durable(case)]
        yield from _pairs(_spread(durable), _spread(others))
        for some in (beside[0], elsewhere, beside[1]):
            yield from _spread(some)


def _pairs(one: Iterator[Case], other: Iterator[Case]) -> Iterator[Case]:
    """Yield two of one, two of the other, and so on: a half of a campaign gets both."""
    while some := [*islice(one, 2), *islice(other, 2)]:
        yield from some


def _is_durable(case: Case) -> bool:
    fault = case.fault
    assert fault is not None
    return fault.site.split()[0] in DURABLE and fault.mode in BOTH_WAYS


def _once(cases: list[Case]) -> tuple[list[Case], list[Case]]:
    """Return the first case of each site and mode, and the others."""
    seen, first, others = set[tuple[str, str]](), list[Case](), list[Case]()
    for case in cases:
        assert case.fault is not None
        key = case.fault.site, case.fault.mode
        (others if key in seen else first).append(case)
        seen.add(key)
    return first, others


def _at(calls: Calls, nth: int, *, beside: bool) -> Iterator[Case]:
    for workload, sites in calls.items():
        for number, (site, count) in enumerate(sites.items()):
            kind = site.split()[0]
            if count < nth or (beside and (workload in ALONE or kind not in BESIDE)):
                continue
            modes = [one for one in (PAIRED if beside else MODES[kind]) if one in MODES[kind]]
            turn = number % len(modes)  # each site begins with another mode
            for mode in (*modes[turn:], *modes[:turn]):
                yield Case(workload, Fault(site, nth, mode), beside)


def _spread(cases: list[Case]) -> Iterator[Case]:
    """Yield a case of each site, the workloads in turns, then the next one of each site."""
    of_site, of_workload = Counter[str](), Counter[tuple[int, str]]()
    ranked: list[tuple[int, int, int, Case]] = []
    for case in cases:
        assert case.fault is not None
        turn = of_site[case.fault.site]
        of_site[case.fault.site] += 1
        place = of_workload[turn, case.workload]
        of_workload[turn, case.workload] += 1
        ranked.append((turn, place, len(ranked), case))
    yield from (case for *_, case in sorted(ranked, key=lambda one: one[:3]))


_CALLS = {
    "write", "pwrite", "fsync", "fdatasync", "rename", "replace", "link", "unlink",
    "ftruncate", "write_bytes", "write_text", "mkstemp", "commit", "write_durably",
    "write_all_durably", "open_durably", "sync_directory",
}  # fmt: skip
# Rooms that make nothing durable of the service, a silo, a client or an auditor.
ASIDE = {
    "app/cli/": "a command's own files, and what it stores for who repeats it",
    "lethe/cli/": "files that a person asked for",
    "lethe/estimators/": "nothing: `unlink` takes a row out of a tree",
    "workers/cli/": "files that a person asked for",
    "workers/data/": "scratch, gone when the process ends",
    "workers/demo/": "demonstrations",
    "workers/mlflow_store.py": "scratch, until it is uploaded",
    "workers/training/": "scratch of a confined process, gone when it ends",
}


def places() -> list[tuple[str, int, int, str]]:
    """Return where the product makes something durable: file, first, last line, call.

    Of every room that the layer watches, but those that are ASIDE.
    """
    found = []
    for room in ROOMS:
        for path in sorted(Path(room).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(tuple(ASIDE)):
                found += [(name, *place) for place in _places_in(path)]
    return found


def _places_in(path: Path) -> Iterator[tuple[int, int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else None
        name = function.id if isinstance(function, ast.Name) else name
        if name not in _CALLS:
            continue
        # `text.replace(old, new)` and `dataclasses.replace(…)` write nothing.
        if name == "replace" and not _renames(node):
            continue
        if name == "write" and not _is_of(node, "os"):
            continue
        # A transaction's commit takes nothing; a trace's span is renamed to no path.
        if (name == "commit" and node.args) or (name == "rename" and _is_of(node, "span")):
            continue
        yield node.lineno, node.end_lineno or node.lineno, name


def _renames(node: ast.Call) -> bool:
    return _is_of(node, "os") or (
        isinstance(node.func, ast.Attribute)
        and len(node.args) == 1
        and not node.keywords
        and not isinstance(node.args[0], ast.Constant)
    )


def _is_of(node: ast.Call, *owners: str) -> bool:
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in owners
