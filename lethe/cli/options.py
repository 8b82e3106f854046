"""Options that commands of `app.cli` and of `workers.cli` share, so that they mean the same."""

import json
from collections.abc import Iterable, Sequence

import click

from lethe.cli import saved


def _saved_url() -> str | None:
    login = saved.read()
    return None if login is None else login.url


def _token_of(context: click.Context, _: click.Parameter, given: str | None) -> str | None:
    # Parameters that are given come before those that are not: the URL is known here.
    found = given or saved.token_for(str(context.params.get("url", "")))
    if found is None:
        raise click.UsageError("a token is needed: set LETHE_TOKEN, or run `lethe login`")
    return found


# Every command that calls a service has it: what is exported once holds for all of them.
service_url = click.option(
    "--url",
    envvar="LETHE_URL",
    default=_saved_url,
    required=True,
    help="The service, such as https://erasure.example (or LETHE_URL, or `lethe login`).",
)
operator_token = click.option(
    "--token",
    envvar="LETHE_TOKEN",
    callback=_token_of,
    help="An operator's bearer token; better in LETHE_TOKEN, where `ps` does not show it.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print the service's JSON.")
each_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


def print_json(document: object) -> None:
    """Print a document in one line."""
    click.echo(json.dumps(document))


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns as wide as their texts, under heads; nothing for no row.

    Texts of another machine are made plain. Columns of figures are the caller's to align.
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    if not cells:
        return
    table = [list(heads), *cells]
    widths = [max(len(row[i]) for row in table) for i in range(len(heads))]
    for row in table:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())


def plain(text: str) -> str:
    """Replace what a terminal would act on: the text is another machine's."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def count(number: int, noun: str) -> str:
    """Return a number with its noun, "1 record" or "2 records"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
