"""The page about estimators: its example prints what it says, and its warning comes first."""

import contextlib
import io

import lethe.estimators
from tests.docs.markdown import blocks, inline_code, read

PAGE = "docs/estimators.md"


def test_the_example_prints_what_the_page_says() -> None:
    (example,), (expected,) = blocks(PAGE, "python"), blocks(PAGE, "text")
    assert len(list(filter(None, example.splitlines()))) == 10
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, PAGE, "exec"), {})
    assert printed.getvalue() == expected


def test_what_must_not_have_seen_the_rows_comes_first() -> None:
    first = read(PAGE).partition("\n## ")[2].partition("\n")[0]
    assert first == "What must not have seen the erased rows"


def test_every_estimator_is_named() -> None:
    named = set(inline_code(PAGE))
    estimators = {name for name in lethe.estimators.__all__ if name.startswith("Exact")}
    assert estimators
    assert estimators | {"RemovalProof"} <= named
