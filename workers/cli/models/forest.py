"""`lethe model register forest`: an exact forest over the rows in DATA."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lethe.cli.options import FILE
from workers.cli.data_options import DATA
from workers.cli.models.fitting import (
    ABOUT_DATA,
    check_manifest,
    read_rows,
    registration_options,
    send,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from workers.registration.recipe import RecipeRows


@click.command(epilog=ABOUT_DATA)
@click.argument("file", type=FILE, metavar="FOREST")
@registration_options
@click.option(
    "--public",
    type=DATA,
    help="Rows that are never erased; their quantiles become the bin edges.",
)
@click.option(
    "--bins",
    type=click.Choice(["declared", "held-out"]),
    default="declared",
    show_default=True,
    help="held-out: quantiles of the held-out rows become the bin edges, and change when one "
    "is erased. declared: edges of the JSON file, or of --public.",
)
def forest(
    url: str,
    ref: str,
    file: Path,
    data: Path | None,
    public: Path | None,
    bins: str,
    **columns: Any,
) -> None:
    """Register an exact forest.

    FOREST is a JSON file (docs/forests.md). The forest is grown on the rows in DATA and
    measured on held-out rows.
    """
    from workers.cli.errors import shown
    from workers.registration import forest as forests
    from workers.registration.recipe import read_recipe

    with shown():
        options = read_recipe(file)
        numbers = bool(options.get("numbers", False))
        rows = read_rows(data, columns, numbers=numbers)
        known = None if public is None else _public(public, columns, rows, numbers=numbers)
        held_out = bins == "held-out"
        prepared = forests.prepare_forest(
            rows, options, ref=ref, public=known, held_out_bins=held_out
        )
        check_manifest(prepared.manifest)
    if public is None and "edges" not in options and not held_out:
        click.echo(
            "bins: the default edges, dense near 0 and ending at ±1,000; for features on other "
            "scales declare edges, or give --public or --bins held-out"
        )
    send(url, prepared, lambda found: forests.predict(found, prepared), numbers=numbers)


def _public(
    public: Path, columns: Mapping[str, Any], rows: "RecipeRows", *, numbers: bool
) -> "NDArray[np.float64]":
    """Return the features of public rows, in the order of those that are learned."""
    from workers.errors import RefusedError

    options = {**columns, "sql": None, "query": None}  # those options name the learned rows
    found = read_rows(public, options, numbers=numbers, quiet=True)
    features = found.features
    if rows.names and found.names:
        if sorted(found.names) != sorted(rows.names):
            raise RefusedError(
                f"{public.name}: has other features than DATA: name those of both with "
                "--features"
            )
        features = features[:, [found.names.index(name) for name in rows.names]]
    click.echo(
        f"{public.name}: {len(features):,} public rows: their quantiles become the edges"
    )
    return features
