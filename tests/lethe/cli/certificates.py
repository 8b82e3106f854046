"""Calls of `lethe certificate` on the files of one certificate, as an office writes them."""

from pathlib import Path

import click
from click.testing import CliRunner, Result

from lethe.cli.certificate import certificate
from lethe.errors import LetheError
from tests.lethe.certificates.build import CERTIFICATE_ID


def run(*arguments: object) -> Result:
    return CliRunner().invoke(certificate, [str(argument) for argument in arguments])


def run_as_main(*arguments: object, command: click.Command = certificate) -> Result:
    """Run a command as `main` does: an error of Lethe's is a line and exit code 2."""

    @click.command()
    def main() -> None:
        try:
            command([str(argument) for argument in arguments], standalone_mode=False)
        except LetheError as error:
            raise click.UsageError(error.detail) from error

    return CliRunner().invoke(main, [])


def bundle_in(files: Path) -> Path:
    return files / f"certificates/{CERTIFICATE_ID}.sigstore.json"


def verify(files: Path, *options: object) -> Result:
    return run_as_main("verify", bundle_in(files), "--keys", files / "keys", *options)
