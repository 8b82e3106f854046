"""The command group: lazy, and an error is one line with its remedy."""

import inspect
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from lethe import DISTRIBUTION
from lethe.cli import main as cli
from lethe.cli.certificate import certificate
from lethe.cli.commands import Point, summary_of
from lethe.errors import LetheError

COMMANDS = """
import sys
import click
from lethe.errors import LetheError

@click.command()
@click.argument("word")
def hello(word):
    "Say a word."
    click.echo(f"hello {word}")

@click.command()
def refused():
    "Be refused."
    raise LetheError("the log is missing: run lethe log init")

@click.command()
def broken():
    "Break."
    raise RuntimeError("a bug")

@click.command()
def late():
    "Import when run."
    import celery_that_is_not_installed

@click.command()
def ours():
    "Import what Lethe lacks."
    import app.no_such_module

@click.command()
def half():
    "Miss what the base install has."
    raise ModuleNotFoundError("No module named 'httpx2._x'", name="httpx2._x")

@click.command()
def recheck():
    "Import numerics when run."
    raise ModuleNotFoundError("No module named 'scipy'", name="scipy")

from lethe.cli.certificate import certificate

no_command = 3
"""

POINTS = """
[lethe.test_commands]
zz-first = lethe_test_commands:hello
hello = lethe_test_commands:hello
refused = lethe_test_commands:refused
broken = lethe_test_commands:broken
late = lethe_test_commands:late
ours = lethe_test_commands:ours
half = lethe_test_commands:half
odd = lethe_test_commands:no_command
serve = lethe_test_server:serve
worker = lethe_test_server:worker
demo = lethe_test_server:demo
tuned = lethe_test_scipy:tuned
certificate = lethe_test_commands:certificate

[lethe.test_certificate_commands]
hello = lethe_test_commands:hello
recheck = lethe_test_commands:recheck
verify = lethe_test_commands:hello
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a distribution whose entry points are POINTS; returns its directory."""
    name = "lethe_test_commands"
    info = tmp_path / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    (tmp_path / f"{name}.py").write_text(COMMANDS)
    (tmp_path / "lethe_test_server.py").write_text(
        "import fastapi_that_is_not_installed\ndef serve():\n    'Start it.'\n"
    )
    (tmp_path / "lethe_test_scipy.py").write_text(
        'raise ModuleNotFoundError("No module named \'sklearn\'", name="sklearn")\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)  # another test's, which is deleted
    monkeypatch.setattr(cli.lethe, "entry_points", "lethe.test_commands")
    monkeypatch.setattr(certificate, "entry_points", "lethe.test_certificate_commands")
    return tmp_path


def lethe(directory: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line in a process of its own."""
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "from lethe.cli import main\n"
        "main.lethe.entry_points = 'lethe.test_commands'\n"
        "main.main()\n"
    )
    command = [sys.executable, "-c", program, str(directory), *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def invoke(*args: str) -> Result:
    return CliRunner().invoke(cli.lethe, args)


def test_a_subcommand_runs(installed: Path) -> None:
    done = lethe(installed, "hello", "world")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello world\n", "")


def test_an_error_is_one_line_without_traceback(installed: Path) -> None:
    done = lethe(installed, "refused")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: the log is missing: run lethe log init\n"


def test_a_bug_keeps_its_traceback(installed: Path) -> None:
    done = lethe(installed, "broken")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "RuntimeError: a bug" in done.stderr


MISSING = [
    (["serve"], "fastapi_that_is_not_installed", "server"),
    (["serve", "--port", "80", "x"], "fastapi_that_is_not_installed", "server"),
    (["serve", "--help"], "fastapi_that_is_not_installed", "server"),
    (["worker"], "fastapi_that_is_not_installed", "worker"),
    (["demo"], "fastapi_that_is_not_installed", "demo"),
    (["tuned"], "sklearn", "demo"),
    (["late"], "celery_that_is_not_installed", "server"),
    (["certificate", "recheck"], "scipy", "recheck"),
]


@pytest.mark.parametrize(
    ("args", "package", "extra"), MISSING, ids=[" ".join(case[0]) for case in MISSING]
)
def test_a_missing_extra_is_named(
    installed: Path, args: list[str], package: str, extra: str
) -> None:
    error = invoke(*args).exception
    assert isinstance(error, LetheError)
    remedy = f"in a clone of Lethe: pip install -c constraints.txt '.[{extra}]'"
    expected = f"the package {package} is not installed: run {remedy}"
    assert error.detail == expected


def test_a_missing_extra_exits_with_2(installed: Path) -> None:
    done = lethe(installed, "serve", "--port", "80")
    assert done.returncode == 2
    assert re.fullmatch(
        r"error: .* pip install -c constraints\.txt '\.\[server\]'\n", done.stderr
    )


def test_a_base_package_is_no_extra(installed: Path) -> None:
    error = invoke("half").exception
    assert isinstance(error, LetheError)
    assert "httpx2 is missing: the installation is incomplete" in error.detail
    assert error.detail.endswith(
        "clone of Lethe: pip install --force-reinstall -c constraints.txt ."
    )


def test_a_missing_module_of_our_own_is_a_bug(installed: Path) -> None:
    error = invoke("ours").exception
    assert isinstance(error, ModuleNotFoundError)
    assert error.name == "app.no_such_module"


def test_help_lists_all_and_imports_none(installed: Path) -> None:
    done = lethe(installed, "--help")
    assert done.returncode == 0
    for line in (r"hello +Say a word\.", r"refused +Be refused\.", r"serve +Start it\."):
        assert re.search(line, done.stdout)
    assert done.stdout.index(" hello") < done.stdout.index(" zz-first")


def test_what_is_no_command_is_a_bug(installed: Path) -> None:
    error = invoke("odd").exception
    assert isinstance(error, TypeError)


def test_an_unknown_subcommand_is_a_usage_error(installed: Path) -> None:
    done = lethe(installed, "helo")
    assert done.returncode == 2
    assert "No such command 'helo'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_certificate_has_commands_of_its_own_and_of_entry_points(installed: Path) -> None:
    assert invoke("certificate", "hello", "you").output == "hello you\n"
    result = invoke("certificate", "--help")
    names = re.findall(r"(?m)^  ([a-z]+) ", result.output.partition("Commands:")[2])
    assert names == [
        "catalogue",
        "cyclonedx",
        "get",
        "hello",
        "page",
        "recheck",
        "report",
        "schema",
        "show",
        "verify",
    ]
    # Nobody replaces one of its own by installing another of that name.
    assert "Say a word" not in invoke("certificate", "verify", "--help").output


def test_the_version_is_printed(tmp_path: Path) -> None:
    info = tmp_path / "lethe_ledger-9.8.7.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 9.8.7\n"
    (info / "METADATA").write_text(text)
    done = lethe(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, "lethe, version 9.8.7\n")


def test_a_subcommand_imports_nothing_of_the_others(installed: Path) -> None:
    program = textwrap.dedent(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        from lethe.cli import main
        main.lethe.entry_points = "lethe.test_commands"
        main.lethe(["hello", "x"], standalone_mode=False)
        print(sorted(name for name in sys.modules if name.startswith("lethe_test")))
        heavy = {"numpy", "scipy", "sqlmodel", "sqlalchemy", "pydantic", "fastapi", "celery",
                 "cryptography", "httpx2"}
        print(sorted(heavy & set(sys.modules)))
        """
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            program,
            str(installed),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[1:] == ["['lethe_test_commands']", "[]"]


PYPROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"
POINTS_OF = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]
POINTS_DECLARED = {n: value for points in POINTS_OF.values() for n, value in points.items()}
DECLARED = {**cli.BASE, **POINTS_DECLARED}


@pytest.mark.parametrize("name", DECLARED)
def test_every_declared_subcommand_is_there(name: str) -> None:
    command = EntryPoint(name, DECLARED[name], "lethe.commands").load()
    assert isinstance(command, click.Command)
    assert command.name == name
    # What the list of commands says, which does not import it.
    point = Point(name, DECLARED[name])
    assert summary_of(point) == inspect.cleandoc(command.help or "") != ""


def _commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from _commands(child)


def test_every_command_that_calls_a_service_has_the_one_url_option() -> None:
    points = (EntryPoint(name, DECLARED[name], "lethe.commands").load() for name in DECLARED)
    found = {
        (option.opts[0], option.envvar, option.help, option.required)
        for point in points
        for command in _commands(point)
        for option in command.params
        if isinstance(option, click.Option) and option.name == "url"
    }
    meaning = "The service, such as https://erasure.example (or LETHE_URL, or `lethe login`)."
    assert found == {("--url", "LETHE_URL", meaning, True)}


@pytest.mark.parametrize("name", ["certificate", "key", "log", "request"])
def test_the_base_subcommands_need_no_extra(name: str) -> None:
    program = (
        "import sys\n"
        "from importlib.metadata import EntryPoint\n"
        "EntryPoint('x', sys.argv[1], 'lethe.commands').load()\n"
        "extra = {'numpy', 'scipy', 'sqlmodel', 'sqlalchemy', 'pydantic', 'fastapi',\n"
        "         'starlette', 'celery', 'redis', 'models', 'workers'}\n"
        "print(sorted(extra & set(sys.modules)))\n"
    )
    command = [sys.executable, "-c", program, DECLARED[name]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
