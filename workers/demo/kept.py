"""The files of a certificate in the demonstration's directory, written in this one place.

They are named after the id inside the certificate. The request's own id would identify them
too, but it gives access to the request (ADR 0003), and certificates are shown to others.
"""

import os
import sys
from pathlib import Path

import click

from lethe.certificates.bundle import parse_bundle
from lethe.certificates.case_summary import check_summary
from lethe.certificates.keys import read_issuer
from lethe.certificates.statement import parse_statement
from lethe.client import Client


def certificate_file(out: Path, certificate_id: str) -> Path:
    """Return the path of the certificate with this id."""
    return out / "certificates" / f"{certificate_id}.sigstore.json"


def evidence_file(out: Path, certificate_id: str) -> Path:
    """Return the path of the evidence of the certificate with this id."""
    return out / "evidence" / f"{certificate_id}.json"


def keep_certificate(out: Path, requester: Client, request_id: str) -> str:
    """Write the certificate and the evidence of a request; returns the certificate's id."""
    bundle, evidence = requester.certificate(request_id), requester.evidence(request_id)
    certificate_id = parse_statement(parse_bundle(bundle).payload).predicate.certificate_id
    certificate_file(out, certificate_id).write_bytes(bundle)
    evidence_file(out, certificate_id).write_bytes(evidence)
    return certificate_id


def answer_file(out: Path) -> Path:
    """Return the path of the signed answer to a person's case."""
    return out / "evidence" / "answer.json"


def keep_answer(out: Path, answer: bytes, certificate_id: str) -> None:
    """Write the signed answer to a case whose only part has this certificate.

    Raises LetheError if the issuer did not sign it, or it names another certificate.
    """
    certificate = certificate_file(out, certificate_id).read_bytes()
    check_summary(answer, read_issuer(out / "keys" / "issuer.pem"), [certificate])
    answer_file(out).write_bytes(answer)


def say_where(out: Path, base_url: str, serving: int | None) -> None:
    """Print the folders, a command to look at a certificate, and how to stop the service.

    serving: The process of the service at `base_url`, None if it was stopped.
    """
    click.echo(f"\n{out}/certificates  certificates      {out}/evidence  their evidence")
    click.echo(f"{out}/models        before, after     {out}/keys      verification keys")
    click.echo(f"{out}/log           the log's mirror, servable over plain HTTP\n")
    first = next(iter(sorted((out / "certificates").iterdir())))
    click.echo(f"Look at one:  {_lethe()} certificate show {first}")
    if serving is not None:
        click.echo(f"Still serving {base_url} (process {serving});")
        click.echo(f"stop it with: kill {serving}")


def _lethe() -> str:
    # As it can be typed here: `make demo` leaves the command in the virtual environment.
    command = Path(sys.executable).with_name("lethe")
    return os.path.relpath(command) if command.exists() else "lethe"
