"""`lethe model register --forest`: an exact forest over the rows in DATA."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workers.cli.models.recipe import check_manifest, read_rows, refuse_others, send

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def register_forest(
    url: str,
    ref: str,
    data: Path | None,
    file: Path,
    public: Path | None,
    bins: str,
    columns: Mapping[str, Any],
) -> None:
    """Register a forest over the rows in DATA, wait until it is fitted, and measure it."""
    from workers.cli.errors import shown
    from workers.registration import forest
    from workers.registration.recipe import read_recipe

    refuse_others(click.get_current_context())
    with shown():
        options = read_recipe(file)
        numbers = bool(options.get("numbers", False))
        rows = read_rows(data, columns, numbers=numbers)
        known = None if public is None else _public(public, columns, numbers=numbers)
        held_out = bins == "held-out"
        prepared = forest.prepare_forest(
            rows, options, ref=ref, public=known, held_out_bins=held_out
        )
        check_manifest(prepared)
    if public is None and "edges" not in options and not held_out:
        click.echo(
            "bins: the default edges, dense near 0 and ending at ±1,000; for features on other "
            "scales declare edges, or give --public or --bins held-out"
        )
    send(url, prepared, lambda found: forest.predict(found, prepared), numbers=numbers)


def _public(
    public: Path, columns: Mapping[str, Any], *, numbers: bool
) -> "NDArray[np.float64]":
    options = {**columns, "sql": None, "query": None}  # those options name the learned rows
    found = read_rows(public, options, numbers=numbers, quiet=True).features
    click.echo(f"{public.name}: {len(found):,} public rows: their quantiles become the edges")
    return found
