"""The options for the columns of a table, and the rows that they open.

All commands that read rows have them, such as `lethe model register`.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lethe.cli.options import plain
from lethe.cli.text.waiting import Passing, on_terminal

if TYPE_CHECKING:
    from workers.data.opening import OpenedData, Progress
    from workers.data.raw import Raw
    from workers.data.tables.labelled import LabelledTable, Roles
    from workers.secure_sum.local import LocalRows

DATA = click.Path(exists=True, path_type=Path)
NAMES = (
    "label", "record_id", "client", "subject", "person", "features", "holdout", "sample_weight",
    "sql", "query",
)  # fmt: skip

_LABEL = click.option("--label", metavar="COLUMN", help="Classes: texts, integers or booleans.")
_RECORD = click.option(
    "--record-id", metavar="COLUMN", help="Record ids. Default: the row numbers."
)
_CLIENT = click.option(
    "--client",
    metavar="COLUMN",
    help='Client that a row belongs to. Default: one client, "all".',
)
_SUBJECT = click.option(
    "--subject", metavar="COLUMN", help="Data subject within the client. Default: the client."
)
_FEATURES = click.option(
    "--features",
    multiple=True,
    metavar="COLUMN|GLOB",
    help="Feature columns, such as 'f_*'; repeatable. Default: all other columns.",
)
_HOLDOUT = click.option(
    "--holdout",
    metavar="SHARE|none|COLUMN",
    help="Rows held out of training. Default: is_test of an .npz; otherwise, at registration, "
    "a tenth.",
)


def _pairs(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if any(not kind or not sign or not column for kind, sign, column in pairs):
        raise click.BadParameter("write KIND=COLUMN, such as email=email_address")
    found = {kind: column for kind, _, column in pairs}
    if len(found) != len(pairs):
        raise click.BadParameter("a KIND is named twice: name one column for each")
    return found


_PERSON = click.option(
    "--person",
    multiple=True,
    callback=_pairs,
    metavar="KIND=COLUMN",
    help="An identity, such as email=email_address; hashed here. Repeatable.",
)
_SQL = click.option(
    "--sql",
    metavar="URL",
    envvar="LETHE_SQL",
    help="Read the rows from this database (an SQLAlchemy URL) instead of DATA.",
)
_QUERY = click.option(
    "--query", metavar="SELECT", help="The query for --sql; needs an ORDER BY to be repeatable."
)


def with_options(
    options: Sequence[Callable[[Callable[..., Any]], Callable[..., Any]]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds options to a command, in the order of --help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def table_options(*, sql: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options of a table's columns."""
    options = [_LABEL, _RECORD, _CLIENT, _SUBJECT, _PERSON, _FEATURES, _HOLDOUT]
    return with_options(options + [_SQL, _QUERY] * sql)


def roles_of(options: Mapping[str, Any]) -> "Roles | None":
    """Return the roles of columns named by options, None if there are none.

    Raises DatasetError for an unknown identity kind.
    """
    from lethe.identity import IdentityError, check_kind
    from workers.data.opening import check_installed
    from workers.errors import DatasetError

    named = {name: options.get(name) for name in NAMES if name not in ("sql", "query")}
    if not any(named.values()):
        return None
    check_installed()
    from workers.data.tables.labelled import Roles

    try:
        for kind in named["person"] or {}:
            check_kind(kind)
    except IdentityError as error:
        raise DatasetError(f"--person: {error.detail}") from None
    return Roles(
        label=named["label"],
        record_id=named["record_id"],
        client=named["client"],
        subject=named["subject"],
        persons=named["person"] or {},
        features=named["features"] or (),
        holdout=None if named["holdout"] is None else _share(named["holdout"]),
        weight=named["sample_weight"],
    )


def _share(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def open_rows(data: Path | None, options: Mapping[str, Any]) -> "OpenedData":
    """Return the rows of DATA or of a query; a terminal shows a progress bar.

    Raises:
        DatasetError: As `workers.data.opening.open_data` and `workers.sql.query_table`.
        click.UsageError: Neither is given, or both are.
    """
    from workers.data.opening import open_data, opened

    if data is None or reads_table(data, options):
        return opened(*open_labelled(data, options))
    return open_data(data, roles_of(options))


def reads_table(data: Path, options: Mapping[str, Any]) -> bool:
    """Return whether `open_labelled` opens DATA as a table, or refuses it beside a query."""
    from workers.data.opening import is_table

    return is_table(data, roles_of(options)) or options.get("query") is not None


def open_labelled(
    data: Path | None, options: Mapping[str, Any], **changes: Any
) -> "tuple[LabelledTable, tuple[str, ...]]":
    """Return the labelled rows of a table or query, and its columns that no option names.

    changes: fields of `Roles` that the kind of model sets, such as numbers. A terminal shows a
    progress bar.

    Raises:
        DatasetError: As `workers.data.opening.open_data` and `workers.sql.query_table`.
        click.UsageError: Neither is given, or both are.
    """
    from workers.data.opening import check_installed, label_table, read_labelled

    sql, query = options.get("sql"), options.get("query")
    if data is not None and query is not None:
        raise click.UsageError("give DATA or --query, not both")
    if data is None and (sql is None or query is None):
        raise click.UsageError("give DATA, or --sql URL with --query SELECT")
    check_installed()
    from workers.data.tables.labelled import Roles

    roles = replace(roles_of(options) or Roles(), **changes)
    if data is not None:
        with reading(f"reading {data.name}") as progress:
            return read_labelled(data, roles, progress=progress)
    from workers.sql import query_table

    assert sql is not None
    assert query is not None
    with reading("reading rows") as progress:
        table = query_table(sql, query, progress=progress)
    return label_table(table, roles)


def read_rows(data: Path, options: Mapping[str, Any], *, people: bool = False) -> "LocalRows":
    """Return a client's own rows, and report on stderr which columns and rows are used.

    None of a table that has a label is left out unless --holdout says so.

    Raises RefusedError as `workers.secure_sum.local.load_rows`.
    """
    from workers.secure_sum.local import load_rows

    roles = roles_of(options)
    if roles is not None:
        holdout = "none" if roles.holdout is None else roles.holdout
        roles = replace(roles, added=True, holdout=holdout)
    with reading(f"reading {data.name}") as progress:
        rows = load_rows(data, roles, people=people, progress=progress)
    for line in rows.lines:
        click.echo(plain(line), err=True)
    return rows


def read_raw(data: Path, options: Mapping[str, Any], text: str | None) -> "Raw":
    """Return an extractor's input from DATA, and the columns kept beside it.

    text: the column of a table that holds texts; None: its features are read. Which columns and
    rows of a table are used is reported on stderr.

    Raises DatasetError as `workers.data.raw.load_raw` and `workers.data.opening.open_data`.
    """
    from workers.data.opening import is_table, read_labelled, taken
    from workers.data.raw import load_raw, raw_of
    from workers.errors import DatasetError

    roles = roles_of(options)
    if text is None and not is_table(data, roles):
        return load_raw(data)
    if roles is not None:
        # Held-out rows are drawn when the features are registered, if they are.
        holdout = "none" if roles.holdout is None else roles.holdout
        roles = replace(roles, added=True, holdout=holdout)
    if roles is not None and text is not None:
        if roles.features:
            raise DatasetError("give --text or --features, not both")
        roles = replace(roles, features=(text,))
    with reading(f"reading {data.name}") as progress:
        rows, unused = read_labelled(data, roles, progress=progress)
    for line in taken(rows, unused).lines():
        click.echo(plain(line), err=True)
    return raw_of(rows, text)


@contextmanager
def reading(label: str) -> Iterator["Progress"]:
    """Yield a function that moves a progress bar on a terminal; a file gets a line at times.

    The bar is full when the total is reached; with an unknown total it only counts.
    """
    if not on_terminal():
        yield Passing(label).tell
        return
    with click.progressbar(length=1000, label=label, file=sys.stderr) as bar:

        def move(done: int, total: int) -> None:
            if total:
                bar.update(min(1000, done * 1000 // total) - bar.pos)
            else:
                bar.label = f"{label}: {done:,}"
                bar.render_progress()

        yield move
        bar.update(1000 - bar.pos)
