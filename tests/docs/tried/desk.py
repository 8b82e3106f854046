"""What a page is tried with: an empty directory, an installation, and what it stands for."""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lethe.client import Client
from tests.docs.markdown import REPOSITORY
from tests.docs.tried.shell import Shell
from tests.e2e.harness import Processes

# Tokens that every installation has, by their names; the scope of each.
TOKENS = {
    "alice": "operator",
    "me": "operator",
    "web-form": "operator",
    "olga": "officer",
    "iris": "auditor",
}


@dataclass
class Desk:
    """A page being tried. printed: what its commands printed so far; port: one that is free."""

    directory: Path
    service: Processes
    shell: Shell
    port: int
    tokens: Mapping[str, str]
    printed: list[str] = field(default_factory=list)
    has_key: bool = False
    entered: Counter[str] = field(default_factory=Counter)

    def requester(self) -> Client:
        """Return a client that signs with a key of the installation's own."""
        if not self.has_key:
            with self.operator() as operator:
                operator.register_key(self.service.key, keyid="web-shop")
            self.has_key = True
        return Client(self.service.base_url, "web-shop", self.service.key)

    @property
    def keys(self) -> Path:
        """Where the installation's keys are."""
        return self.service.directory / "data" / "keys"

    def found(self, pattern: str, which: int = -1) -> str:
        """Return what a command of the page printed: a group of a pattern, by default the last."""
        found: list[str] = re.findall(pattern, "\n".join(self.printed), re.MULTILINE)
        return found[which]

    def run(self, command: str) -> str:
        """Enter a command that is not the page's; returns what it printed."""
        status, printed = self.shell.run(command)
        assert status == 0, f"{command}: {printed}"
        return printed

    @contextmanager
    def extras(self) -> Iterator[None]:
        """On a page of the base install, run the block with all extras."""
        self.run('BASE="$PATH" PATH="$EXTRAS"')
        yield
        self.run('PATH="$BASE"')

    def operator(self, name: str = "alice") -> Client:
        """Return a client with the token of that name."""
        return Client(self.service.base_url, token=self.tokens[name])


Hook = Callable[[Desk], object]
Value = str | Callable[[Desk], str]


def nothing(_: object) -> None:
    """Prepare nothing."""


@dataclass(frozen=True)
class Page:
    """How a page is tried.

    install: what is put into the installation before it starts.
    prepare: makes the files that the page takes for granted.
    stands: texts of the page and what they stand for; `{url}`, `{port}` and `{keys}` are of the
        installation, `{here}` is the directory, and paths in it are shown as on the page.
    before: what others do before a statement. typed: what is answered to its questions.
    exits: the status that the page gives, where that is not 0: each time in turn, and the last
        one from then on.
    serves: servers, and what they print once they are ready.
    settings: of the installation. runs: whether it does; if not, the page starts its own.
    who: whose token is in LETHE_TOKEN, "" for nobody's.
    base: whether its commands run in an environment of the base install, and see no more of the
        installation than its URL and a token. extras: those that need an extra, as it says.
    A statement is named by how it begins.
    """

    install: Callable[[Processes], object] = nothing
    prepare: Hook = nothing
    stands: Mapping[str, Value] = field(default_factory=dict)
    before: Mapping[str, Hook] = field(default_factory=dict)
    typed: Mapping[str, str] = field(default_factory=dict)
    exits: Mapping[str, Sequence[int]] = field(default_factory=dict)
    serves: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    who: str = "alice"
    runs: bool = True
    base: bool = False
    extras: Sequence[str] = ()

    def environment(
        self, home: Path, service: Processes, tokens: Mapping[str, str]
    ) -> dict[str, str]:
        """Return what the page's shell sees: nothing of the user's, and an operator's settings."""
        seen = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "OPENBLAS_NUM_THREADS": "1",
        }
        if self.runs and self.who:
            whole = {} if self.base else service.environment()
            seen |= {name: value for name, value in whole.items() if name.startswith("LETHE_")}
            seen |= {"LETHE_URL": service.base_url, "LETHE_TOKEN": tokens[self.who]}
        return seen

    def entered(self, statement: str, desk: Desk, used: set[str]) -> str:
        """Return a statement with what its placeholders stand for."""
        place = {
            "url": desk.service.base_url,
            "port": str(desk.port),
            "keys": str(desk.keys),
            "here": str(desk.directory),
        }
        for text, value in self.stands.items():
            word = re.compile(rf"(?<![\w-]){re.escape(text)}(?![\w])")
            if word.search(statement):
                used.add(text)
                made = value(desk) if callable(value) else value.format(**place)
                statement = word.sub(lambda _, made=made: made, statement)  # type: ignore[misc]
        return statement

    def as_shown(self, printed: str, desk: Desk, used: set[str]) -> str:
        """Return what was printed with the page's paths in place of those of its directory."""
        for text, value in self.stands.items():
            if isinstance(value, str) and value.startswith("{here}"):
                place = value.format(here=desk.directory)
                if place in printed:
                    used.add(text)
                    printed = printed.replace(place, text)
        return printed


def named(statement: str, by: Mapping[str, object], used: set[str]) -> str | None:
    """Return the longest name in a table that a statement begins with, None without one."""
    found: Sequence[str] = sorted(filter(statement.startswith, by), key=len)
    if not found:
        return None
    used.add(found[-1])
    return found[-1]


def beside(desk: Desk, *paths: str) -> None:
    """Put folders of the repository into the page's directory: the page says to be in a clone."""
    for path in paths:
        (desk.directory / path).symlink_to(REPOSITORY / path)
