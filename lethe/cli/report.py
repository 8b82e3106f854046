"""`lethe report`: the requests of a period for a regulator, from the log."""

from datetime import datetime
from pathlib import Path

import click

from lethe.cli import saved
from lethe.cli.options import (
    FILE,
    OUT_FILE,
    as_json,
    plain,
    print_failed,
    print_json,
    service_url,
    write_out,
)
from lethe.errors import LetheError

_DAY = click.DateTime(["%Y-%m-%d"])


@click.group()
def report() -> None:
    """Count the erasure requests of a period from the log, and verify such a report."""


@report.command()
@service_url
@click.option("--from", "first", type=_DAY, required=True, help="First day, YYYY-MM-DD.")
@click.option("--to", "last", type=_DAY, required=True, help="Last day, included.")
@click.option(
    "--format", "form", type=click.Choice(["json", "csv", "html", "pdf"]), default="json"
)
@click.option("--language", type=click.Choice(["en", "de", "fr"]), default="en")
@click.option("--out", type=OUT_FILE, help="Output file. Default: report-FROM-TO.FORMAT.")
def period(
    url: str, first: datetime, last: datetime, form: str, language: str, out: Path | None
) -> None:
    """Write the report of a period.

    Set a token of an operator, officer or auditor in LETHE_TOKEN. JSON contains the proofs, CSV
    does not; a PDF has the JSON attached.
    """
    days = first.date().isoformat(), last.date().isoformat()
    with saved.client(url) as service:
        made = service.period_report(days[0], days[1], form, language)
    path = out or Path(f"report-{days[0]}-{days[1]}.{form}")
    write_out(path, made)


@report.command()
@click.argument("file", type=FILE)
@click.option("--log-key", type=FILE, help="The log's verifier key (vkey).")
@click.option(
    "--trust-root",
    type=FILE,
    help="Names the log's keys after a rotation; --log-key is then the key that you know.",
)
@click.option(
    "--log",
    "source",
    metavar="URL|DIRECTORY",
    help="The log or a mirror: recount the figures from its entries.",
)
@as_json
def verify(
    file: Path, log_key: Path | None, trust_root: Path | None, source: str | None, as_json: bool
) -> None:
    """Verify a report (JSON): its entries are in the signed log; with --log, its figures too.

    With --log, the figures are recounted from the log's entries. Methods and checks come from
    certificates, which the log does not hold: they are never recounted. Exits with 1 if the
    report does not verify.
    """
    from lethe.cli.trusted import trusted_log
    from lethe.log.fetch import fetch_from
    from lethe.log.follow import read_log
    from lethe.report.period import MAX_REPORT, check

    verifier = trusted_log(log_key, trust_root)
    entries = None
    try:
        if source is not None:
            _, entries = read_log(fetch_from(source), verifier)
        with file.open("rb") as opened:
            found = check(opened.read(MAX_REPORT + 1), verifier, entries)
    except LetheError as error:
        print_failed(error.detail, as_json)
    if as_json:
        counted = entries is not None
        print_json({"result": "PASS", "counted_again": counted, "figures": found["figures"]})
        return
    click.echo("PASS  the entries of the period are a range of the log that its key signed")
    log, first, last = found["log"], found["first"], found["last"]
    start, end = log["start"]["size"], log["end"]["size"]
    span = f"entries {start} to {end - 1}" if end > start else "no entry"
    click.echo(plain(f"      {first} to {last}: {span} of {log['origin']}"))
    if entries is None:
        click.echo("      figures not counted again: give --log")
    else:
        click.echo("      the figures are those that the log's entries give")
    for name, number in found["figures"].items():
        click.echo(f"{number:8}  {name}")
