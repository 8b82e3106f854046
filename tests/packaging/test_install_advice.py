"""Nobody is told to install `lethe` by its name: on PyPI that is another project's package."""

import re

import pytest

from lethe import install
from tests.docs.markdown import PAGES, REPOSITORY
from workers import libraries as of_workers

ROOMS = ("app", "benchmarks", "docker", "flower", "migrations", "models", "scripts", "workers")
SOURCES = [
    path
    for room in ROOMS
    for path in sorted((REPOSITORY / room).rglob("*"))
    if path.suffix in {".md", ".py", ".sh", ".txt", ".yaml"}
]
# pip, pipx and uv, over a line's end as well; a quoted extra is advice wherever it stands.
BY_NAME = re.compile(
    r"\b(?:pip\w*|uv)(?:\s+\S+){0,2}?\s+(?:install|add)"
    r"(?:\s+-\S+|\s+\S+\.txt|[\s'\"\\f])*lethe(?![\w/-]|\.\w)"
    r"|\blethe\[(?=[\w{])"
)


def test_no_source_and_no_page_advises_it() -> None:
    searched = [*PAGES, *SOURCES, REPOSITORY / "Makefile", REPOSITORY / "Dockerfile"]
    assert len(searched) > 300
    found = [
        f"{path.relative_to(REPOSITORY)}: {match[0]}"
        for path in searched
        for match in BY_NAME.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "advice",
    [
        "pip install lethe",
        "run pip install --force-reinstall lethe",
        "pip install -c constraints.txt 'lethe[torch]'",
        "run pip install 'lethe[{extra}]'",
        'f"run pip install "\n    f"lethe"',
        "uv add lethe",
        "python -m pip --python v/bin/python install lethe.",
        "needs `lethe[recheck]`: NumPy",
    ],
)
def test_such_advice_is_noticed(advice: str) -> None:
    assert BY_NAME.search(advice)


@pytest.mark.parametrize(
    "advice", ["pip install -c constraints.txt '.[torch]'\nlethe migrate", install.again()]
)
def test_an_install_from_a_clone_is_fine(advice: str) -> None:
    assert not BY_NAME.search(advice)


@pytest.mark.parametrize("extra", ["recheck", "server", "torch", "vision"])
def test_both_sides_of_the_import_rule_say_the_same(extra: str) -> None:
    said = install.with_extra(extra)
    assert said == f"in a clone of Lethe: pip install -c constraints.txt '.[{extra}]'"
    assert of_workers.with_extra(extra) == said


def test_the_readme_says_whose_package_it_is() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert "Lethe is not on PyPI: the package `lethe` there is another project." in readme
