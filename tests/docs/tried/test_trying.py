"""A page whose command fails, or whose output is stale, is noticed; so is a spare exception."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.tried.desk import Desk, Page
from tests.docs.tried.left_out import LeftOut, is_left_out, spare
from tests.docs.tried.shell import Shell
from tests.docs.tried.statements import blocks_of
from tests.docs.tried.trying import try_blocks
from tests.e2e.harness import Processes

Trial = Callable[..., None]
GOOD = """
```sh
export NAME=ann          # kept for the next block
greet() {
    echo "hello \\
$1"
}
```

A list:

1. Say it.
   ```sh
   # A comment is no command.
   greet "$NAME" | tr a-z A-Z
   python3 - <<'END'
for number in range(3):
    print("line", number)
END
   ```
   ```text
   line 7
   …
   ```
"""


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """Try a page against nothing but a shell."""

    def run(text: str, page: Page | None = None) -> None:
        directory, page = tmp_path / "page", page or Page(runs=False)
        directory.mkdir()
        service = Processes(tmp_path, "", "")
        with Shell(
            directory, tmp_path / "entered", page.environment(tmp_path, service, {})
        ) as sh:
            desk = Desk(directory, service, sh, 0, {})
            try_blocks("page.md", blocks_of(text), page, desk)

    return run


def page_of(command: str, shown: str) -> str:
    return f"```sh\n{command}\n```\n\n```\n{shown}\n```\n"


def test_a_page_is_entered_as_a_reader_would(trial: Trial) -> None:
    trial(GOOD)


def test_a_command_that_fails_is_noticed(trial: Trial) -> None:
    with pytest.raises(
        AssertionError, match=r"page\.md:1: lethe model shwo churn\nends with 2"
    ):
        trial("```sh\nlethe model shwo churn\n```\n")


def test_a_status_that_the_page_does_not_say_is_noticed(trial: Trial) -> None:
    with pytest.raises(AssertionError, match="ends with 0, not 1"):
        trial("```sh\ntrue\n```\n", Page(runs=False, exits={"true": [1]}))


PRINTED = "echo 'churn is ready at version 12, made 2026-11-27T03:00:00Z'"


@pytest.mark.parametrize(
    ("shown", "good"),
    [
        ("churn is ready at version 1, made 2025-01-31T09:10:11Z", True),
        ("churn is …", True),
        ("churn is ready, made 2025-01-31T09:10:11Z", False),
        ("churn is ready at version 1, made yesterday", False),
        ("churn is ready at version 1, made 2025-01-31T09:10:11Z\nand more", False),
    ],
)
def test_an_output_that_is_stale_is_noticed(trial: Trial, shown: str, good: bool) -> None:
    if good:
        trial(page_of(PRINTED, shown))
        return
    with pytest.raises(AssertionError, match="but its commands print"):
        trial(page_of(PRINTED, shown))


def test_a_server_that_ends_is_noticed(trial: Trial) -> None:
    serves = {"python3": "ready"}
    forever = "python3 -uc 'import time; print(\"ready\"); time.sleep(600)'"
    trial(f"```sh\n{forever}\ntrue\n```\n", Page(runs=False, serves=serves))


def test_a_server_that_has_ended_is_noticed(trial: Trial) -> None:
    page = Page(runs=False, serves={"echo": "ready"})
    with pytest.raises(AssertionError, match="ended"):
        trial("```sh\necho ready\nwait\n```\n", page)


def test_a_preparation_that_the_page_does_not_need_is_noticed(trial: Trial) -> None:
    with pytest.raises(AssertionError, match=r"page\.md has none of \{'CASE'\}"):
        trial("```sh\ntrue\n```\n", Page(runs=False, stands={"CASE": "1"}))


def test_an_exception_that_the_documentation_does_not_need_is_noticed() -> None:
    pages = {"page.md": blocks_of("```sh\nmake test\ntrue\n```\n")}
    needed = LeftOut("*", "make *", "long")
    gone = LeftOut("*", "docker *", "no daemon")
    assert spare([needed, gone], pages) == [gone]
    (block,) = pages["page.md"]
    assert [is_left_out("page.md", block, one, [needed]) for one in block.statements] == [
        True,
        False,
    ]
