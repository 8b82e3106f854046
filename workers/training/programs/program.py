"""An operator's program: its files, its locked distributions, its output."""

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from workers.errors import RefusedError

# name==version, optionally with extras, followed by a marker, a hash or a comment.
PINNED = re.compile(
    r"([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\]\s*)?==\s*([\w.!+-]+)(?:\s*;.*|\s+--hash=.*)?",
    re.ASCII,
)
MOST_DISTRIBUTIONS = 200


class OtherEnvironmentError(RefusedError):
    """Installed versions differ from the lock file. The message names the first."""


@dataclass(frozen=True, slots=True)
class Program:
    """Files by name, the entry file, the lock file, and the form of the output.

    output: safetensors or onnx. threads: of numeric libraries. tolerance: largest relative
    difference between two runs, None if runs give equal bytes. classes: number of labels, 0
    for numbers. columns: number of a row's features; features: their names, categories: those
    of text features, if registered. predict: the file that predicts with the output, None
    without one.
    """

    files: Mapping[str, str]
    entry: str
    lock: str
    output: str
    seed: int
    threads: int
    tolerance: float | None
    classes: int
    columns: int
    predict: str | None = None
    features: tuple[str, ...] = ()
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> "Program":
        """Return the program of a model's configuration. Raises RefusedError."""
        try:
            said = config["script"]
            tolerance = said["tolerance"]
            return cls(
                files=dict(said["files"]),
                entry=said["entry"],
                lock=said["lock"],
                output=said["output"],
                seed=int(said["seed"]),
                threads=int(said["threads"]),
                tolerance=None if tolerance is None else float.fromhex(tolerance),
                classes=int(config["classes"]),
                columns=int(config["columns"]),
                predict=said["predict"],
                features=tuple(config.get("features", ())),
                categories=dict(config.get("categories", {})),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            raise RefusedError(
                "the program in the model's configuration cannot be read: register the "
                "model again"
            ) from None

    @property
    def locked(self) -> dict[str, str]:
        """The versions that the lock file names, by distribution. Raises RefusedError."""
        return parse_lock(self.files[self.lock], self.lock)


def parse_lock(text: str, name: str) -> dict[str, str]:
    """Return the versions that a lock file names, by distribution, sorted.

    Raises RefusedError, naming file and line, for a line that is not `name==version`.
    """
    found: dict[str, str] = {}
    joined = re.sub(r"\\\r?\n", lambda _: "  ", text)
    for number, line in enumerate(joined.splitlines(), 1):
        wanted = line.partition("#")[0].strip()
        if not wanted or wanted.startswith("--hash"):
            continue
        match = PINNED.fullmatch(wanted)
        if match is None:
            raise RefusedError(
                f"{name}, line {number}: must be NAME==VERSION, as `pip freeze` writes it"
            )
        found[normalised(match[1])] = match[2]
    if len(found) > MOST_DISTRIBUTIONS:
        raise RefusedError(f"{name}: at most {MOST_DISTRIBUTIONS} distributions")
    return dict(sorted(found.items()))


def normalised(name: str) -> str:
    """Return the normalised name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def check_environment(program: Program) -> None:
    """Return if everything in the lock file is installed here, in these versions.

    Raises OtherEnvironmentError, naming the first distribution that differs.
    """
    for name, wanted in program.locked.items():
        if (found := _installed(name)) != wanted:
            here = "is not installed" if found is None else f"is {found}"
            raise OtherEnvironmentError(
                f"{program.lock} names {name} {wanted}, which {here} on this worker: install "
                "the versions of the lock file, or correct it"
            )


def versions(program: Program) -> dict[str, str]:
    """Return the versions of interpreter and locked distributions here, by name."""
    found = {name: _installed(name) or "not installed" for name in program.locked}
    return {**found, "python": platform.python_version()}


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
