"""A Dockerfile without an engine: its stages parsed, their steps run below a directory.

Only the instructions that Lethe's Dockerfile uses are understood, and any other is an
error, so that the file cannot grow a step that no test runs. Paths of the image become
paths below `root`; what stands for the base image's Python is the one running the tests.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
IMAGE_PATHS = ("/opt/lethe", "/src", "/var/lib/lethe")  # what the steps read and write
_FLAGS = re.compile(r"(?:--[a-z]+=\S+\s+)*")


@dataclass
class Stage:
    """One FROM and what follows it; `steps` are (instruction, argument) pairs."""

    base: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def last(self, instruction: str) -> str | None:
        """Return the argument of the last such instruction."""
        return next((text for name, text in reversed(self.steps) if name == instruction), None)


def parse_dockerfile(text: str) -> dict[str, Stage]:
    """Return the stages by name, in order."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for line in filter(None, map(str.strip, joined.splitlines())):
        instruction, _, argument = line.partition(" ")
        if instruction == "FROM":
            base, _, name = argument.partition(" AS ")
            stage = stages[name] = Stage(base, name)
        elif stage is not None:
            stage.steps.append((instruction, argument.strip()))
        else:
            assert instruction == "ARG", f"{instruction} before the first FROM"
    return stages


def lineage(stages: dict[str, Stage], name: str) -> list[Stage]:
    """Return a stage and those it is built on, the oldest first."""
    stage = stages[name]
    below = lineage(stages, stage.base) if stage.base in stages else []
    return [*below, stage]


def environment_of(stages: dict[str, Stage], name: str) -> dict[str, str]:
    """Return what ENV sets in the image of a stage."""
    pairs: dict[str, str] = {}
    for stage in lineage(stages, name):
        for instruction, argument in stage.steps:
            if instruction == "ENV":
                words = [word.partition("=") for word in shlex.split(argument)]
                pairs.update({name: text for name, _, text in words})
    return pairs


def command_of(stages: dict[str, Stage], name: str) -> list[str]:
    """Return what the image of a stage starts."""
    argument = stages[name].last("CMD")
    assert argument is not None, f"{name} starts nothing"
    return [str(word) for word in json.loads(argument)]


def health_command_of(stages: dict[str, Stage], name: str) -> list[str]:
    """Return what the image of a stage asks whether it is healthy."""
    argument = stages[name].last("HEALTHCHECK")
    assert argument is not None, f"{name} has no health check"
    return [str(word) for word in json.loads(argument.partition("CMD ")[2])]


def context_files(repository: Path = REPOSITORY) -> list[Path]:
    """Return the files, relative, that .dockerignore lets into the build."""
    patterns = [
        line
        for line in (repository / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    top = [path for path in repository.iterdir() if not _ignored(Path(path.name), patterns)]
    files = [path for path in top if path.is_file()]
    for directory in (path for path in top if path.is_dir()):
        files += [path for path in directory.rglob("*") if path.is_file()]
    relative = [path.relative_to(repository) for path in files]
    return sorted(path for path in relative if not _ignored(path, patterns))


def _ignored(path: Path, patterns: list[str]) -> bool:
    ignored = False
    for pattern in patterns:
        keep, glob = pattern.startswith("!"), pattern.removeprefix("!")
        if any(_matches(part, glob) for part in (path, *path.parents)):
            ignored = not keep
    return ignored


def _matches(path: Path, glob: str) -> bool:
    if glob.startswith("**/"):
        return fnmatchcase(path.name, glob.removeprefix("**/"))
    return len(path.parts) == 1 and fnmatchcase(path.name, glob)


class Sandbox:
    """A directory in which steps run as they would in an image, without its isolation."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._cwd = root
        (root / "bin").mkdir(parents=True)
        python = root / "bin" / "python"
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)

    def build(self, stage: Stage) -> None:
        """Run one stage's WORKDIR, COPY and RUN steps, without those it is built on."""
        for instruction, argument in stage.steps:
            match instruction:
                case "WORKDIR":
                    self._cwd = self.path(argument)
                    self._cwd.mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(argument)
                case "RUN":
                    command = argument[_FLAGS.match(argument).end() :]  # type: ignore[union-attr]
                    # Python compiles what is imported, a tenth of what is installed.
                    pip = {"PIP_COMPILE": "0"}
                    self.run(["sh", "-euc", self.translate(command)], pip, check=True)
                case "ARG":  # the step that reads it says the same default, for `sh`
                    name, _, default = argument.partition("=")
                    assert any(f"${{{name}:-{default}}}" in text for _, text in stage.steps)
                case "ENV" | "CMD" | "HEALTHCHECK" | "EXPOSE" | "VOLUME" | "USER":
                    pass
                case _:
                    raise AssertionError(f"no test runs {instruction}: teach it to Sandbox")

    def run(
        self, command: list[str], environment: dict[str, str], *, check: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run a command with what ENV sets and return what it printed."""
        done = subprocess.run(
            **self._arguments(command, environment), capture_output=True, text=True, check=False
        )
        if check:
            assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
        return done

    def start(
        self, command: list[str], environment: dict[str, str], cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command with what ENV sets, in `cwd` or the last WORKDIR."""
        arguments = self._arguments(command, environment)
        return subprocess.Popen(**arguments | ({"cwd": cwd} if cwd else {}))

    def _arguments(self, command: list[str], environment: dict[str, str]) -> dict[str, Any]:
        variables = self._variables(environment)
        program = shutil.which(command[0], path=variables["PATH"])
        assert program is not None, f"{command[0]} is not on the image's PATH"
        return {
            "args": [program, *map(self.translate, command[1:])],
            "cwd": self._cwd,
            "env": variables,
            "stdin": subprocess.DEVNULL,
        }

    def _variables(self, environment: dict[str, str]) -> dict[str, str]:
        """Return what a process in the image would see: nothing of this checkout's."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("LETHE_", "PYTHON", "VIRTUAL_ENV", "PYTEST"))
        }
        base = f"{self.root}/bin:{os.environ['PATH']}"
        own = {
            name: self.translate(text).replace("$PATH", base)
            for name, text in environment.items()
        }
        return {**inherited, "PATH": base, **own}

    def path(self, image_path: str) -> Path:
        """Return where an absolute path of the image lies here."""
        return self.root / image_path.lstrip("/")

    def translate(self, text: str) -> str:
        """Return a command or value with the image's paths replaced."""
        for path in IMAGE_PATHS:
            text = re.sub(rf"(?<![\w.]){path}\b", str(self.path(path)), text)
        return text

    def _copy(self, argument: str) -> None:
        words = argument.split()
        if words[0].startswith("--from="):
            return  # stages share this directory
        *sources, target = words
        into = self.path(target) if target.startswith("/") else self._cwd / target
        files = context_files()
        for source in sources:
            found = [file for file in files if Path(source) in (file, *file.parents)]
            assert found, f"COPY {source}: not in the build context, see .dockerignore"
            for file in found:
                single = file == Path(source)
                end = into / file.name if target.endswith("/") else into
                copy = end if single else into / file.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(REPOSITORY / file, copy)
