"""`lethe model register vectors`: a vector index of the rows in DATA."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lethe.cli.options import FILE, plain
from workers.cli import service
from workers.cli.models.fitting import (
    ABOUT_DATA,
    FIT_SECONDS,
    check_manifest,
    registration_options,
)

if TYPE_CHECKING:
    from workers.registration.recipe import RecipeRows


@click.command(epilog=ABOUT_DATA)
@click.argument("file", type=FILE, metavar="INDEX")
@registration_options
def vectors(url: str, ref: str, file: Path, data: Path | None, **columns: Any) -> None:
    """Register a vector index.

    INDEX is a JSON file (docs/vectors.md). The index is built of the rows in DATA, which need
    no labels, and its recall is measured.
    """
    from workers.cli.errors import shown
    from workers.registration import vectors as indexes
    from workers.registration.recipe import read_recipe

    with shown():
        options = read_recipe(file)
        rows = _read(data, columns)
        prepared = indexes.prepare_vectors(rows, options, ref=ref, folder=file.parent)
        check_manifest(prepared.manifest)
    with service.connect(url) as operator:
        operator.register_model(service.decided(prepared.manifest), prepared.npz)
        click.echo(f"registered {prepared.summary()}; building …")
        service.wait_until_ready(operator, ref, FIT_SECONDS)
        version = operator.model(ref)["current_version"]
        with shown():
            queries = prepared.features if len(prepared.features) else rows.features
            queries = queries[: indexes.QUERIES]
            found = indexes.recall(operator.artifact(ref, int(version)), queries)
    whose = "held-out" if len(prepared.features) else "own"
    click.echo(
        f"recall@{indexes.NEIGHBOURS} beside exhaustive search, {len(queries)} {whose} rows as "
        f"queries: {found:.3f}"
    )


def _read(data: Path | None, columns: Mapping[str, Any]) -> "RecipeRows":
    """Return the vectors of DATA or of a query, and report them. Raises RefusedError.

    No row is held out unless --holdout or --send-holdout is given: an index has all rows.
    """
    from workers.cli.data_options import open_labelled, reads_table, roles_of
    from workers.data.federation import HELD_OUT
    from workers.data.npz import load_npz, names_held_out
    from workers.data.opening import some, taken
    from workers.registration.vectors import vectors_of_federation, vectors_of_table

    sent = bool(columns.get("send_holdout"))
    names, lines = "", []
    if data is None or reads_table(data, columns):
        unasked = not sent and columns.get("holdout") is None
        changes = {"holdout": "none"} if unasked else {}
        table, unused = open_labelled(data, columns, unlabelled=True, **changes)
        rows = vectors_of_table(table)
        left = taken(table, unused)
        if unasked:
            left = replace(left, chosen_by="none, unless asked for")
        names, lines = f": {some(table.features)}", left.left()
    else:
        roles = roles_of(columns)
        share = None if roles is None or names_held_out(data) else roles.npz_share()
        share = (HELD_OUT if sent else 0.0) if share is None else share
        rows = vectors_of_federation(load_npz(data, share=share, labelled=False))
    count, width = rows.features.shape
    for line in (f"{count:,} vectors of {width:,} float32 numbers{names}", *lines):
        click.echo(plain(line))
    return replace(rows, send_held_out=sent)
