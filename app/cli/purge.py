"""`lethe purge`: searches for traces of erased people."""

import json
import sys

import click


@click.group()
def purge() -> None:
    """Search for remaining data of erased persons."""


@purge.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(as_json: bool) -> None:
    """Search for identifiers that should be gone.

    Reads them from standard input, one a line, because other users of the machine can see a
    command line: ids of records, clients or subjects, or an Idempotency-Key. Searches every
    table, sealed data, files, pages and the broker. Changes nothing and prints places, never
    an identifier. Exits with 1 if it finds any.
    """
    from app.purge.search import search  # needs the server extra
    from app.settings import Settings

    found = search(Settings(), _identifiers(sys.stdin.buffer.read()))
    if as_json:
        click.echo(json.dumps(found.as_json()))
    else:
        report = found.as_json()
        click.echo(f"{report['result']}  {sum(found.leftovers.values())} leftovers")
        for title in ("leftovers", "kept", "remnants"):
            for place, count in report[title].items():
                click.echo(f"      {title}: {place}: {count}")
        for place, why in report["not_inspected"].items():
            click.echo(f"      not inspected: {place}: {why}")
        for place in report["elsewhere"]:
            click.echo(f"      look yourself: {place}")
    if not found.ok:
        sys.exit(1)


def _identifiers(data: bytes) -> list[str]:
    """Return the lines of a text that are not empty, without a byte order mark."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise click.UsageError(
            "standard input is not UTF-8, so nothing could be found: save the file as UTF-8"
        ) from None
    return [line for line in text.replace("\r", "\n").split("\n") if line.strip()]
