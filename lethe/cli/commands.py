"""Groups whose subcommands are imported only when they are used.

`lethe certificate verify` runs once for each certificate, so this imports neither the other
subcommands nor their dependencies. Subcommands of the base install are found by module name;
the others are entry points, which require reading the metadata of all installed packages: that
takes longer than verifying a certificate.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from lethe import install
from lethe.errors import LetheError

# Each extra includes those before it, so the last required one is the answer.
_EXTRAS = ("server", "worker", "demo", "federated")
_EXTRA_OF_COMMAND = {
    "client": "worker",
    "demo": "demo",
    "demo-federated": "federated",
    "features": "worker",
    "model": "worker",
    "policy": "worker",
    "round": "worker",
    "worker": "worker",
}
_EXTRA_OF_PACKAGE = {
    "Crypto": "worker",
    "safetensors": "worker",
    "scipy": "worker",
    "sklearn": "demo",
    "threadpoolctl": "worker",
    "torch": "federated",
}
# Recomputing a verdict needs numerics, but no server packages.
_RECHECK, _RECHECK_COMMANDS = "recheck", ("certificate", "recheck")
_BASE_PACKAGES = frozenset(
    {"click", "cryptography", "http_message_signatures", "http_sf", "httpx2", "rfc8785"}
)
_OWN_PACKAGES = frozenset({"app", "lethe", "migrations", "models", "workers"})


class MissingExtraError(LetheError):
    """A subcommand needs packages that are not installed."""

    slug, title = "missing-extra", "Not installed"


@dataclass(frozen=True)
class Point:
    """The location of a subcommand: `value` is MODULE:FUNCTION."""

    name: str
    value: str

    @property
    def module(self) -> str:
        """The module that defines it."""
        return self.value.partition(":")[0]

    @property
    def attr(self) -> str:
        """The name of its function there."""
        return self.value.partition(":")[2]


class Commands(click.Group):
    """A group with lazily imported subcommands of the base install, and entry points.

    base: its lazily imported subcommands, MODULE:FUNCTION by name.
    """

    def __init__(
        self,
        *args: Any,
        entry_points: str,
        base: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.entry_points = entry_points
        self._base = {name: Point(name, value) for name, value in (base or {}).items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, sorted."""
        return sorted({*super().list_commands(ctx), *self._points()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand, imported if needed; one that says so if its extra is missing."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        point = self._base.get(cmd_name) or self._points().get(cmd_name)
        return None if point is None else _load(point)

    def _points(self) -> dict[str, Point]:
        from importlib.metadata import entry_points

        installed = entry_points(group=self.entry_points)
        return {point.name: Point(point.name, point.value) for point in installed} | self._base

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them: importing all takes a second."""
        points = self._points()
        limit = formatter.width - 6 - max(map(len, self.list_commands(ctx)), default=0)
        rows = []
        for name in self.list_commands(ctx):
            own = super().get_command(ctx, name)
            shown = click.Command(name, help=summary_of(points[name])) if own is None else own
            rows.append((name, shown.get_short_help_str(limit)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the matching subcommands and options, without importing any command."""
        points = self._points()
        found = [
            CompletionItem(name, help=_first_line(points.get(name)))
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; packages that it imports lazily may be missing too."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            raise _missing(ctx.invoked_subcommand or "", error) from error


def summary_of(point: Point) -> str:
    """Return the docstring of a subcommand's function, read from its source."""
    spec = find_spec(point.module)
    if spec is None or spec.origin is None:
        return ""
    for node in ast.parse(Path(spec.origin).read_bytes()).body:
        if isinstance(node, ast.FunctionDef) and node.name == point.attr:
            return ast.get_docstring(node) or ""
    return ""


def _first_line(point: Point | None) -> str:
    return "" if point is None else summary_of(point).partition("\n")[0]


def _load(point: Point) -> click.Command:
    try:
        command = getattr(import_module(point.module), point.attr)
    except ModuleNotFoundError as error:
        return _unavailable(point.name, _missing(point.name, error))
    if not isinstance(command, click.Command):
        raise TypeError(f"{point.value} is not a click command")
    return command


def _unavailable(name: str, error: MissingExtraError) -> click.Command:
    """Return a command that takes any arguments, `--help` too, and raises `error`."""

    def refuse() -> None:
        raise error

    return click.Command(
        name,
        callback=refuse,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


def _missing(command: str, error: ModuleNotFoundError) -> MissingExtraError:
    """Return the missing extra as an error.

    A missing module of Lethe itself is a bug: reraise.
    """
    package = (error.name or "").partition(".")[0]
    if package in _OWN_PACKAGES or not package:
        raise error
    if package in _BASE_PACKAGES:
        return MissingExtraError(
            f"the package {package} is missing: the installation is incomplete, "
            f"run {install.again()}"
        )
    if command in _RECHECK_COMMANDS:
        return MissingExtraError(_remedy(package, _RECHECK))
    extras = (_EXTRA_OF_COMMAND.get(command), _EXTRA_OF_PACKAGE.get(package), _EXTRAS[0])
    extra = max((name for name in extras if name), key=_EXTRAS.index)
    return MissingExtraError(_remedy(package, extra))


def _remedy(package: str, extra: str) -> str:
    return f"the package {package} is not installed: run {install.with_extra(extra)}"
