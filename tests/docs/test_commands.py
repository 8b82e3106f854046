"""Every command, option, make target and fault step that is named exists."""

import re
import shlex
import subprocess

import click
import pytest

from app.steps import STEPS
from lethe.cli.main import lethe
from tests.docs.markdown import NAMES, REPOSITORY, read, shell_lines

WORD = re.compile(r"[a-z][a-z-]*")


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:  # prose between backticks, or a cut here-document
        return line.split()


def _invocations(name: str) -> list[list[str]]:
    """Return the words after each `lethe`."""
    found = []
    for line in shell_lines(name):
        words = _words(line)
        for position, word in enumerate(words):
            if words[:1] != ["from"] and (word == "lethe" or word.endswith("/bin/lethe")):
                found.append(words[position + 1 :])
    return [words for words in found if words]


def problem_with(words: list[str]) -> str | None:
    """Return what is wrong with a call of `lethe`, or None."""
    command: click.Command = lethe
    with click.Context(lethe) as context:
        rest = list(words)
        while isinstance(command, click.Group) and rest and WORD.fullmatch(rest[0]):
            found = command.get_command(context, rest[0])
            if found is None:
                return f"no command {rest[0]}"
            command = found
            rest = rest[1:]
        options = {flag for parameter in command.params for flag in parameter.opts}
        for word in rest:
            flag = word.strip("[]()").partition("=")[0]
            if flag.startswith("--") and flag not in options | {"--help", "--version"}:
                return f"no option {flag}"
    return None


CASES = [
    pytest.param(words, id=f"{name}-{' '.join(words)[:60]}")
    for name in NAMES
    for words in _invocations(name)
]


@pytest.mark.parametrize("words", CASES)
def test_commands_and_options_exist(words: list[str]) -> None:
    assert problem_with(words) is None


def test_the_documentation_shows_every_command() -> None:
    shown = {words[0] for name in NAMES for words in _invocations(name)}
    with click.Context(lethe) as context:
        assert set(lethe.list_commands(context)) <= shown


@pytest.mark.parametrize(
    "words",
    [
        ["forget"],
        ["log", "delete"],
        ["serve", "--prot", "1"],
        ["key", "new", "--keyid=a", "--x"],
    ],
    ids=" ".join,
)
def test_a_wrong_call_is_noticed(words: list[str]) -> None:
    assert problem_with(words) is not None


@pytest.mark.parametrize("name", NAMES)
def test_make_targets_exist(name: str) -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (REPOSITORY / "Makefile").read_text()))
    for line in shell_lines(name):
        match = re.match(r"\s*make ([a-z-]+)", line)
        if match:
            assert match[1] in targets, line


def test_make_help_lists_every_target_and_development_md_describes_it() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    phony = re.search(r"(?m)^\.PHONY: (.*)$", makefile)
    assert phony is not None
    done = subprocess.run(
        ["make", "-s", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    listed = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert listed.keys() == set(phony[1].split())
    rows = re.findall(r"(?m)^\| `make ([a-z-]+)` \|", read("docs/development.md"))
    assert sorted(rows) == sorted(listed)


def test_the_hooks_run_the_tools_of_make_check() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    recipe = re.search(r"(?m)^check:.*\n((?:\t.*\n)+)", makefile)
    assert recipe is not None
    checked = [line.strip() for line in recipe[1].replace("$(BIN)/", "").splitlines()]
    config = (REPOSITORY / ".pre-commit-config.yaml").read_text()
    hooks = re.findall(r"entry: \.venv/bin/(.*)", config)
    # A hook gets the changed files where `make check` names all of them.
    assert hooks == [line.replace(" .", " --force-exclude") for line in checked]


def test_fault_steps_exist() -> None:
    planted = re.findall(r"LETHE_FAULT='([^'@=]+)", read("docs/development.md"))
    assert planted
    assert set(planted) <= set(STEPS)
