"""The `lethe` command: a group whose subcommands are entry points, each loaded when used.

`lethe certificate verify` is run once for each certificate, so this imports neither the
other subcommands nor anything they need.
"""

import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from app import install
from app.errors import LetheError

GROUP = "lethe.commands"
CERTIFICATE_GROUP = "lethe.certificate.commands"

# Each extra includes the ones before it: the last that anything asks for is the answer.
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
# What computes a verdict again needs numerics and nothing of a server.
_RECHECK, _RECHECK_COMMANDS = "recheck", ("certificate", "recheck")
_BASE_PACKAGES = frozenset(
    {"click", "cryptography", "http_message_signatures", "http_sf", "httpx2", "rfc8785"}
)
_OWN_PACKAGES = frozenset({"app", "migrations", "models", "workers"})


class MissingExtraError(LetheError):
    """A subcommand needs packages that are not installed."""

    slug = "missing-extra"
    title = "Not installed"


class Subcommands(click.Group):
    """Finds subcommands among the entry points of `lethe.commands`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all installed subcommands, sorted."""
        return sorted(installed(GROUP))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one subcommand; if its extra is missing, return one that says so."""
        return find(GROUP, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; packages it imports only now may be missing too."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            raise _missing(ctx.invoked_subcommand or "", error) from error


class CertificateCommands(click.Group):
    """Has commands of its own, which need the base install, and those of entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of both, sorted."""
        return sorted({*super().list_commands(ctx), *installed(CERTIFICATE_GROUP)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one of its own, or import one as `Subcommands` does."""
        return super().get_command(ctx, cmd_name) or find(CERTIFICATE_GROUP, cmd_name)


def installed(group: str) -> set[str]:
    """Return the names of the commands among the entry points of `group`."""
    return {point.name for point in entry_points(group=group)}


def find(group: str, name: str) -> click.Command | None:
    """Import the command `name` of a group of entry points, None if there is none."""
    for point in entry_points(group=group, name=name):
        return _load(point)
    return None


def _load(point: EntryPoint) -> click.Command:
    try:
        command = point.load()
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
        short_help=f"Not available: {error.detail}",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


def _missing(command: str, error: ModuleNotFoundError) -> MissingExtraError:
    """Return what to install. A missing module of Lethe's own is a bug: `error` goes on."""
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


@click.command(cls=Subcommands)
@click.version_option(package_name="lethe", prog_name="lethe")
def lethe() -> None:
    """Record, execute and prove erasure requests on machine-learning models."""


def main() -> None:
    """Run the command line. Exits with 2 on an error that names its cause and remedy."""
    try:
        lethe(prog_name="lethe")
    except LetheError as error:
        click.echo(f"error: {error.detail}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
