"""Calls of `lethe certificate` on the files of one certificate, as an office writes them."""

from pathlib import Path

from click.testing import CliRunner, Result

from app.cli.certificate import certificate
from tests.app.certificates.build import CERTIFICATE_ID


def run(*arguments: object) -> Result:
    return CliRunner().invoke(certificate, [str(argument) for argument in arguments])


def bundle_in(files: Path) -> Path:
    return files / f"certificates/{CERTIFICATE_ID}.sigstore.json"


def verify(files: Path, *options: object) -> Result:
    return run("verify", bundle_in(files), "--keys", files / "keys", *options)
