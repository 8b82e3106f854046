"""`lethe person`: find a person, and import the identities of a model's rows.

The identity is hashed here. Only digests are sent, in a body and never in a URL.
"""

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lethe.cli import saved
from lethe.cli.options import FILE, as_json, count, plain, service_url
from lethe.cli.text.case import count_removed, say_kind
from lethe.identity import Identity, IdentityError, digests, parse, parse_digest

if TYPE_CHECKING:
    from lethe.client import Client

AT_ONCE = 5000  # identities per call


@click.group()
def person() -> None:
    """Find people's records by e-mail address or another identity.

    Needs an operator's token in LETHE_TOKEN; for `find`, an officer's suffices.
    """


@person.command()
@service_url
@click.argument("identity", metavar="KIND=VALUE")
@click.option(
    "--model",
    "models",
    multiple=True,
    help="Look in this model; repeatable. Default: all models.",
)
@as_json
def find(url: str, identity: str, models: tuple[str, ...], as_json: bool) -> None:
    """Show the records of a person in each model, by KIND=VALUE or KIND:sha256=HEX.

    Exits with 1 if no model has or had records of the person.
    """
    wanted = parse(identity)
    with saved.client(url) as operator:
        found = operator.find_person(wanted, models or None)
    if as_json:
        click.echo(json.dumps(found))
    else:
        for one in found:
            print_found(one)
    kinds = ("records", "held_out", "erased", "uncertified")
    if not any(one.get(kind) for one in found for kind in kinds):
        say_kind(wanted.kind)
        sys.exit(1)


def print_found(one: Mapping[str, Any]) -> None:
    """Print what was found of a person in one model."""
    parts = []
    if one["records"]:
        number = count(len(one["records"]), "record")
        parts.append(f"{number}: {', '.join(one['records'])}")
    if one["held_out"]:
        records = set(one["records"])
        # Rows that make a forest's bins are both held-out rows and records.
        of_bins = [record for record in one["held_out"] if record in records]
        others = [record for record in one["held_out"] if record not in records]
        if of_bins:
            parts.append(f"of these {len(of_bins)} held out for bins: {', '.join(of_bins)}")
        if others:
            parts.append(f"{len(others)} held out, never learned: {', '.join(others)}")
    if one["erased"]:
        parts.append(f"{one['erased']} erased before")
    if one.get("uncertified"):
        parts.append(f"{one['uncertified']} erased, not certified")
    click.echo(plain(f"{one['model']:24} {'; '.join(parts) or 'nothing found'}"))


@person.command("import")
@service_url
@click.argument("file", type=FILE)
@click.option("--kind", required=True, help="The kind of identity, such as email.")
@click.option(
    "--record-id",
    "record",
    default="record",
    show_default=True,
    metavar="COLUMN",
    help="Column of the record ids.",
)
@click.option(
    "--column",
    metavar="COLUMN",
    help="Column of the values. Default: the column named like the kind.",
)
@click.option("--model", required=True, help="Reference of the model.")
@click.option("--hashed", help="The values are hex digests of this algorithm, such as sha256.")
def import_file(
    url: str,
    file: Path,
    kind: str,
    record: str,
    column: str | None,
    model: str,
    hashed: str | None,
) -> None:
    """Import identities of a model's records from a CSV file.

    FILE has a header. One column has the record ids and one the values; others are ignored.
    If FILE has two columns, the values may be in a column of any name. Rows without a
    value are skipped and counted. Importing a file twice changes nothing.
    """
    from lethe.client import ProblemError

    added = read = empty = 0
    with saved.client(url) as operator:
        block: list[tuple[str, Identity]] = []
        lines: list[int] = []
        for line, name, identity in _rows(file, kind, hashed, record, column):
            if identity is None:
                empty += 1
                continue
            block.append((name, identity))
            lines.append(line)
            read += 1
            if len(block) == AT_ONCE:
                added += _send(operator, model, block, lines, ProblemError)
                block, lines = [], []
        if block:
            added += _send(operator, model, block, lines, ProblemError)
    without = f"; left out: {count(empty, 'row')} without a value" if empty else ""
    click.echo(f"{read} identities read, {added} new in {model}{without}")


@person.command()
@service_url
@click.option("--model", required=True, help="Reference of the model.")
@click.option(
    "--record", "records", multiple=True, required=True, help="Id of a row; repeatable."
)
def remove_held_out(url: str, model: str, records: tuple[str, ...]) -> None:
    """Remove held-out rows that were sent to measure a model, by their record ids.

    Fails if one of them is not stored; then none is removed. A case removes those of its
    person by itself.
    """
    with saved.client(url) as operator:
        done = operator.remove_held_out(model, records)
    click.echo(plain(count_removed(done["removed"], done["log_index"], only=True)))


def _send(
    operator: "Client",
    model: str,
    block: list[tuple[str, Identity]],
    lines: list[int],
    problem: type[Any],
) -> int:
    """Send some identities; name the lines whose records the model lacks."""
    try:
        return operator.import_people(model, block)
    except problem as error:
        known = error.places(len(block))
        if not known:
            raise
        named = ", ".join(f"{block[one - 1][0]} (line {lines[one - 1]})" for one in known)
        raise click.ClickException(
            plain(
                f"{model} has not learned these records: {named}; none of the {len(block)} "
                "rows of this block were imported: correct or remove them"
            )
        ) from None


def _rows(
    file: Path, kind: str, hashed: str | None, record_column: str, column: str | None
) -> Iterator[tuple[int, str, Identity | None]]:
    """Yield the line, record and identity of each row, None without a value."""
    with file.open(newline="", encoding="utf-8-sig") as text, _readable():
        reader = csv.reader(text)
        header = [name.strip() for name in next(reader, [])]
        places = _places(header, kind, record_column, column)
        for row in reader:
            if not row:
                continue
            if len(row) != len(header) or not row[places[0]]:
                raise click.ClickException(
                    f"line {reader.line_num}: give each of the header's columns a cell, and "
                    f"{header[places[0]]} an id"
                )
            record, value = (row[place] for place in places)
            if not value.strip():
                yield reader.line_num, record, None
                continue
            try:
                found = (
                    digests(kind, value)
                    if hashed is None
                    else {hashed: parse_digest(hashed, value.strip())}
                )
            except IdentityError as error:
                raise click.ClickException(f"line {reader.line_num}: {error.detail}") from None
            yield reader.line_num, record, Identity(kind, found)


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (UnicodeDecodeError, csv.Error):
        raise click.ClickException(
            "the file is not CSV in UTF-8: save it as such; spreadsheets call it CSV UTF-8"
        ) from None


def _places(
    header: Sequence[str], kind: str, record: str, column: str | None
) -> tuple[int, int]:
    """Return the columns of record ids and values. Raises click.ClickException."""
    others = [name for name in header if name != record]
    if column is None:
        column = others[0] if len(header) == 2 and len(others) == 1 else kind
    for option, name in (("--record-id", record), ("--column", column)):
        if header.count(name) != 1:
            raise click.ClickException(
                f"the file must have exactly one column {name}: name another with {option}"
            )
    if record == column:
        raise click.ClickException("--record-id and --column must name two columns")
    return header.index(record), header.index(column)
