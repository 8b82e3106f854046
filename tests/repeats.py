"""Which tests send PostgreSQL nothing that other tests do not send it: `make repeats`.

Run on PostgreSQL, a test of the API or of a job shows that its statements work there. Further
tests that send the same ones show nothing new: `repeats.txt` names them, and `make test-repeats`
runs them there. Two statements are one if their texts differ only in how many values they have,
and if they end alike: with rows or without, or with the same error.

    pytest -p tests.repeats …     # records what each test sends
    python -m tests.repeats       # writes repeats.txt
"""

import ast
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import psycopg
import pytest

from models.database import pipeline
from tests import sizes

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".txt")
RECORDED = ROOT / "build" / "repeats"

Sent = set[tuple[str, str]]  # a statement's text, and how it ended

_TYPE = r"(?:TIMESTAMP WITH(?:OUT)? TIME ZONE|DOUBLE PRECISION|\w+)(?:\[\])?"
_VALUE = rf"(?:%\(\w+\)s|%s|\$\d+)(?:::{_TYPE})?"
_VALUES = re.compile(rf"{_VALUE}(?:, {_VALUE})*")
_ROWS = re.compile(r"\(\?\)(?:, \(\?\))+")
_NAMES = re.compile(r"(lethe_test|sa_savepoint)_[0-9a-f]+")
# Where the database's own behaviour is the point, the text of statements is not: words in a
# test's name, and what a test with several callers at once uses.
WORDS = {"clock", "commits", "database", "databases", "lease", "lock", "locks", "meanwhile"}
WORDS |= {"once", "statement", "waits"}
CALLERS = {"Thread", "ThreadPoolExecutor"}

sent_here: Sent = set()
_recorded: list[dict[str, Any]] = []
_seconds: dict[str, float] = defaultdict(float)
_skipped: set[str] = set()


def _note(text: Any, outcome: str) -> None:
    plain = _NAMES.sub(r"\1", text.decode() if isinstance(text, bytes) else str(text))
    sent_here.add((_ROWS.sub("(?)", _VALUES.sub("?", plain)), outcome))


def note_all(execute: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(execute)
    def noting(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        try:
            result = execute(self, query, *arguments, **options)
        except psycopg.Error as error:
            _note(query, error.sqlstate or type(error).__name__)
            raise
        _note(query, "none" if self.rowcount == 0 else "rows")
        return result

    return noting


def _noting_each(run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def noting(driver: Any, statements: Any, **options: Any) -> Any:
        try:
            answers = run(driver, statements, **options)
        except psycopg.Error as error:
            for text, _ in statements:
                _note(text, error.sqlstate or type(error).__name__)
            raise
        for (text, _), rows in zip(statements, answers, strict=True):
            _note(text, "rows" if rows else "none")
        return answers

    return noting


def pytest_configure() -> None:
    """Note what psycopg's cursors and the pipeline of `models.database` are given by each test."""
    sizes.REPEATED = frozenset()
    for name in ("execute", "executemany"):
        setattr(psycopg.Cursor, name, note_all(getattr(psycopg.Cursor, name)))
    pipeline.run = _noting_each(pipeline.run)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note what one test sends, its fixtures included."""
    sent_here.clear()
    result = yield
    _recorded.append({"test": item.nodeid, "seconds": 0.0, "sent": sorted(sent_here)})
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how long a test took, and if it was skipped: of such a test nothing is known."""
    _seconds[report.nodeid] += report.duration
    if report.skipped:
        _skipped.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write what this process noted."""
    if _recorded:
        RECORDED.mkdir(parents=True, exist_ok=True)
        rows = [
            {**one, "seconds": _seconds[one["test"]]}
            for one in _recorded
            if one["test"] not in _skipped
        ]
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        (RECORDED / f"{worker}.json").write_text(json.dumps(rows))


def chosen(sent: Mapping[str, Sent], seconds: Mapping[str, float], known: Sent) -> set[str]:
    """Return tests that together send all that all tests send and is not known.

    The one that adds most for its time comes first: a greedy cover.
    """
    left, known = set(sent), set(known)
    while gains := {name: added for name in left if (added := len(sent[name] - known))}:
        best = max(gains, key=lambda name: (gains[name] / seconds[name], name))
        known |= sent[best]
        left.remove(best)
    return set(sent) - left


def main() -> None:
    """Write the list, and say what it saves."""
    sent: dict[str, Sent] = defaultdict(set)
    seconds: dict[str, float] = defaultdict(lambda: 1e-3)
    known: Sent = set()
    for file in sorted(RECORDED.glob("*.json")):
        for row in json.loads(file.read_text()):
            function = row["test"].partition("[")[0]
            of_it = {(text, outcome) for text, outcome in row["sent"]}
            if function.startswith(sizes.EVERY_CASE_ON_BOTH) or is_of_the_database(function):
                known |= of_it
            else:
                sent[function] |= of_it
                seconds[function] += row["seconds"]
    repeats = sorted(set(sent) - chosen(sent, seconds, known))
    LIST.write_text("".join(f"{name}\n" for name in repeats))
    saved, all_of_them = (sum(seconds[name] for name in some) for some in (repeats, sent))
    sys.stdout.write(
        f"{len(repeats)} of {len(sent)} tests repeat what others send: "
        f"{saved:.0f} of {all_of_them:.0f} s\n"
    )


def is_of_the_database(function: str) -> bool:
    path, _, name = function.partition("::")
    if WORDS & set(name.split("_")):
        return True
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return bool(CALLERS & set(re.findall(r"\w+", ast.unparse(node))))
    return False


if __name__ == "__main__":
    main()
