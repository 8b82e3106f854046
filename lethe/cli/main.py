"""The `lethe` command."""

import sys

import click

from lethe import DISTRIBUTION
from lethe.cli.commands import Commands
from lethe.errors import LetheError

BASE = {
    "audit": "lethe.cli.audit:audit",
    "callback": "lethe.cli.callback:callback",
    "case": "lethe.cli.case:case",
    "certificate": "lethe.cli.certificate:certificate",
    "completion": "lethe.cli.login:completion",
    "drop": "lethe.cli.drop:drop",
    "hold": "lethe.cli.hold:hold",
    "key": "lethe.cli.key:key",
    "log": "lethe.cli.log:log",
    "login": "lethe.cli.login:login",
    "logout": "lethe.cli.login:logout",
    "person": "lethe.cli.person:person",
    "report": "lethe.cli.report:report",
    "request": "lethe.cli.request:request",
    "witness": "lethe.cli.witness:witness",
    "webhook": "lethe.cli.webhook:webhook",
}


@click.command(cls=Commands, entry_points="lethe.commands", base=BASE)
@click.version_option(package_name=DISTRIBUTION, prog_name="lethe")
def lethe() -> None:
    """Record, execute and prove erasure requests on machine-learning models."""


def main() -> None:
    """Run the command line. Exits with 2 on an error that names its cause and remedy."""
    try:
        lethe(prog_name="lethe")
    except LetheError as error:
        from lethe.cli.options import plain

        # Line by line: details may name what a file or a service says.
        said = "\n".join(plain(line) for line in f"error: {error.detail}".split("\n"))
        click.echo(said, err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
