"""What is left out of `make coverage` is there, under the name that `tests/sizes.py` has."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.sizes import (
    COMPILED,
    EVERY_CASE_ON_BOTH,
    FULL,
    ONE_CASE,
    ONE_CASE_ROOMS,
    QUICK,
    REPEATED,
    assign,
)

REPOSITORY = Path(__file__).parent.parent


def test_every_entry_names_a_test() -> None:
    for name in [*FULL, *ONE_CASE, *ONE_CASE_ROOMS, *EVERY_CASE_ON_BOTH, *REPEATED]:
        path, _, function = name.partition("::")
        place = REPOSITORY / path
        assert place.exists(), name
        if function:
            assert f"\ndef {function}(" in place.read_text(), name


def test_every_quick_test_is_there() -> None:
    """The verifier in JavaScript is put through tests of other files."""
    for name in {one.partition("[")[0] for one in QUICK}:
        path, _, function = name.partition("::")
        place = REPOSITORY / path
        assert place.exists(), f"{name}: run `make quick`, or change it in tests/quick.txt"
        if not path.startswith("tests/lethe/web/"):
            assert f"\ndef {function}(" in place.read_text(), name


class Item:
    """A collected test, as `assign` sees it."""

    def __init__(self, nodeid: str, *fixtures: str, database: str = "") -> None:
        self.nodeid, self.fixturenames = nodeid, fixtures
        self.callspec = SimpleNamespace(params={"database_url": database})
        self.marks: set[str] = set()

    def add_marker(self, mark: Any) -> None:
        self.marks.add(mark.name)


def marks(*items: Item) -> list[set[str]]:
    assign(cast("list[pytest.Item]", items))
    return [item.marks - {"thorough"} for item in items]


def test_what_is_compiled_runs_compiled_in_the_full_tests() -> None:
    for room in COMPILED:
        item = Item(f"{room}/test_something.py::test_it")
        assign(cast("list[pytest.Item]", [item]))
        assert item.marks == {"thorough"}


def test_every_entry_leaves_its_tests_out() -> None:
    assert [name for name in FULL if marks(Item(name)) != [{"full"}]] == []


def test_postgresql_runs_the_first_case_and_repeats_the_others() -> None:
    for place, repeated in [
        ("tests/workers/jobs/test_it.py::test_it", [False, True]),
        *((one, [True, True]) for one in REPEATED),
        *((f"{one}/test_it.py::test_it", [False, False]) for one in EVERY_CASE_ON_BOTH),
    ]:
        cases = [Item(f"{place}[{case}]", database="postgresql") for case in "ab"]
        assert ["repeats" in found for found in marks(*cases)] == repeated, place


def test_the_first_case_stays() -> None:
    whole = {"full"}
    for name in ONE_CASE:
        found = marks(Item(f"{name}[a]"), Item(f"{name}[b]"))
        elsewhere = name.startswith(tuple(FULL))  # all of it is in `make test-full`
        assert found == ([whole, whole] if elsewhere else [set(), whole]), name
    for room in ONE_CASE_ROOMS:
        name = f"{room}/test_something.py::test_it"
        cases = [Item(f"{name}[{case}]", "ledger") for case in "ab"]
        assert marks(*cases) == [set(), whole]
        assert marks(Item(f"{name}[a]"), Item(f"{name}[b]")) == [set(), set()]


def test_only_tests_with_cases_have_a_first_case() -> None:
    for name in ONE_CASE:
        path, _, function = name.partition("::")
        text = (REPOSITORY / path).read_text()
        before = text.partition(f"\ndef {function}(")[0].rpartition("\n\n\n")[2]
        aliases = re.findall(r"^(\w+) = pytest\.mark\.parametrize", text, re.MULTILINE)
        assert any(f"@{one}" in before for one in ["pytest.mark.parametrize", *aliases]), name
