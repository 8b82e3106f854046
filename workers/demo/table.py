"""Verify each certificate in its own process, and print a table of the results."""

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click

from lethe.certificates.bundle import parse_bundle
from lethe.certificates.statement import parse_statement
from workers.demo.kept import certificate_file, evidence_file

PROCESSES = 2
FEW = 5  # with fewer, the values themselves say more than a median


@dataclass(slots=True)
class TableRow:
    """One request and its outcome; seconds from submission to certificate.

    id: the certificate's, by which its files are named.
    """

    scope: str
    records: tuple[str, ...]
    client: str | None
    id: str
    seconds: float
    method: str = ""
    guarantee: str = ""
    checks: str = ""
    verdict: str = ""


def verify_all(out: Path, outcomes: Sequence[TableRow]) -> None:
    """Fill in each outcome's verdict from `lethe certificate verify`."""
    last = outcomes[-1].id
    with ThreadPoolExecutor(PROCESSES) as pool:
        verdicts = pool.map(
            lambda one: _verify(out, one.id, with_model=one.id == last), outcomes
        )
        for outcome, verdict in zip(outcomes, verdicts, strict=True):
            outcome.verdict = verdict
            data = certificate_file(out, outcome.id).read_bytes()
            payload = parse_bundle(data).dsse_envelope.payload
            predicate = parse_statement(payload).predicate
            passed = sum(check.passed for check in predicate.checks)
            outcome.method = predicate.method.id
            outcome.guarantee = predicate.guarantee.class_
            outcome.checks = f"{passed}/{len(predicate.checks)}"


def _verify(out: Path, certificate_id: str, with_model: bool) -> str:
    command = [sys.executable, "-m", "lethe.cli.main", "certificate", "verify"]
    command += [str(certificate_file(out, certificate_id)), "--json"]
    command += ["--keys", str(out / "keys")]
    command += ["--evidence", str(evidence_file(out, certificate_id))]
    if with_model:  # earlier versions are shredded: only the last can still be shown
        command += ["--model", str(out / "models" / "after.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return str(json.loads(done.stdout)["result"]) if done.stdout else "ERROR"


def print_table(outcomes: Sequence[TableRow]) -> None:
    """Print one line per request."""
    header = ("file", "scope", "method", "guarantee", "checks", "seconds", "offline")
    rows = [
        (
            outcome.id[:8],
            outcome.scope,
            outcome.method,
            outcome.guarantee,
            outcome.checks,
            f"{outcome.seconds:.2f}",
            outcome.verdict,
        )
        for outcome in outcomes
    ]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    click.echo()
    for row in [header, tuple("-" * width for width in widths), *rows]:
        click.echo(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        )
    click.echo(f"\nSubmission to certificate: {_waited([one.seconds for one in outcomes])}")


def _waited(seconds: Sequence[float]) -> str:
    if len(seconds) < FEW:
        return ", ".join(f"{one:.2f} s" for one in seconds)
    return f"median {median(seconds):.2f} s"
