"""Options shared by commands of `lethe.cli`, `app.cli` and `workers.cli`."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import click

from lethe.cli import saved


def _saved_url() -> str | None:
    login = saved.read()
    return None if login is None else login.url


# The states of a request, as app.schemas.requests has them: the base install has no app.
STATES = (
    "received",
    "awaiting-review",
    "cooling-off",
    "paused",
    "executing",
    "awaiting-client",
    "awaiting-round",
    "escalated",
    "verifying",
    "needs-decision",
    "certified",
    "refused",
    "withdrawn",
    "failed",
)


def _token_of(context: click.Context, _: click.Parameter, given: str | None) -> str | None:
    # Given parameters are processed before missing ones: the URL is known here.
    found = given or saved.token_for(str(context.params.get("url", "")))
    if found is None:
        raise click.UsageError("a token is needed: set LETHE_TOKEN, or run `lethe login`")
    return found


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
OUT_FILE = click.Path(dir_okay=False, path_type=Path)
OUT_FOLDER = click.Path(file_okay=False, path_type=Path)

# For every command that calls a service: the environment variable works for all of them.
service_url = click.option(
    "--url",
    envvar="LETHE_URL",
    default=_saved_url,
    required=True,
    help="The service, such as https://erasure.example (or LETHE_URL, or `lethe login`).",
)


def _token_option(whose: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--token",
        envvar="LETHE_TOKEN",
        callback=_token_of,
        help=f"{whose} bearer token; better in LETHE_TOKEN, where `ps` does not show it.",
    )


# By who may make the call: see docs/install.md, "Roles".
operator_token = _token_option("An operator's")
deciding_token = _token_option("An operator's or officer's")
reading_token = _token_option("An operator's, officer's or auditor's")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
each_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


def print_json(document: object) -> None:
    """Print a document on one line."""
    click.echo(json.dumps(document))


def print_answer(answer: object, as_json: bool, text: str) -> None:
    """Print a service's answer as JSON, or what it says on one line; both are untrusted."""
    if as_json:
        print_json(answer)
    else:
        click.echo(plain(text))


def print_failed(detail: str, as_json: bool) -> NoReturn:
    """Print why a file does not verify, and exit with 1."""
    if as_json:
        print_json({"result": "FAIL", "detail": detail})
    else:
        click.echo(plain(f"FAIL  {detail}"))
    sys.exit(1)


def print_list(
    found: Iterable[Mapping[str, Any]],
    as_json: bool,
    heads: Sequence[str],
    row: Callable[[Mapping[str, Any]], Sequence[str]],
) -> None:
    """Print a service's list as one JSON document, or as a table with a `row` of each item."""
    items = list(found)
    if as_json:
        print_json(items)
    else:
        print_table(heads, map(row, items))


def print_rows(*rows: tuple[str, str], width: int = 12) -> None:
    """Print each row's label and text."""
    for label, text in rows:
        click.echo(plain(f"{label:{width}} {text}"))


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns under heads, with numeric columns aligned to the right.

    Untrusted texts are sanitised. On a terminal, cells that do not fit are wrapped if `rich` is
    installed: it comes with the extra `server`.
    """
    cells = [[plain(cell) for cell in row] for row in rows]
    if not cells:
        click.echo("nothing to list", err=True)
        return
    heads = [head.upper() for head in heads]
    figures = [
        all(cell.lstrip("-").isdigit() for cell in column)
        for column in zip(*cells, strict=True)
    ]
    if (
        sys.stdout.isatty()
        and find_spec("rich") is not None
        and _print_wrapped(heads, cells, figures)
    ):
        return
    table = [heads, *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        line = (
            cell.rjust(width) if is_figure else cell.ljust(width)
            for cell, width, is_figure in zip(row, widths, figures, strict=True)
        )
        click.echo("  ".join(line).rstrip())


def _print_wrapped(
    heads: Sequence[str], rows: Sequence[Sequence[str]], figures: Sequence[bool]
) -> bool:
    """Print a table that fits the terminal, or return False: ids for copying are never cut."""
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head, is_figure in zip(heads, figures, strict=True):
        table.add_column(head, justify="right" if is_figure else "left")
    for row in rows:
        table.add_row(*map(Text, row))  # a Text is not markup: [bold] in a name stays as it is
    console = Console()
    fits = (
        Measurement.get(console, console.options.update(max_width=10**6), table).minimum
        <= console.width
    )
    if fits:
        console.print(table)
    return fits


def write_out(path: Path, data: bytes) -> None:
    """Write a command's output file and print its path. Raises click.UsageError."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from None
    click.echo(str(path))


def plain(text: str) -> str:
    """Replace characters that a terminal would interpret: a text or file is untrusted."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def escaped(document: str) -> str:
    """Return JSON with `plain`'s characters as escapes, which leave its value as it is."""
    return "".join(
        c if c.isprintable() else re.sub("....", r"\\u\g<0>", c.encode("utf-16-be").hex())
        for c in document
    )


def count(number: int, noun: str) -> str:
    """Return a number with its noun, "1 record" or "2 records"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
