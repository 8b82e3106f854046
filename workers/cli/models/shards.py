"""`lethe model register --recipe FILE --shards S`: an estimator over shares of the rows."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from workers.cli.models.recipe import (
    FIT_SECONDS,
    check_manifest,
    check_rows,
    checked,
    measured,
    read_rows,
    refuse_others,
    send,
)

FIT_MEMORY_BYTES = 8 << 30  # LETHE_FIT_MEMORY_BYTES in a service's default


def register_shards(
    url: str,
    ref: str,
    data: Path | None,
    file: Path,
    options: Mapping[str, Any],
    columns: Mapping[str, Any],
) -> None:
    """Register shards over the rows in DATA, wait, and compare them with an unsharded model."""
    from workers.cli.errors import shown
    from workers.registration import shards
    from workers.registration.recipe import read_recipe
    from workers.training.recipes.process import Limits

    refuse_others(click.get_current_context())
    with shown():
        document = read_recipe(file)
        recipe = checked(document)
        numbers = not recipe.classifies
        known = document.get("categories")
        rows = read_rows(data, columns, numbers=numbers, categories=known)
        prepared = shards.prepare_shards(rows, document, options, ref=ref)
        check_manifest(prepared)
        check_rows(recipe, rows)
    how = prepared.manifest["shards"]
    click.echo(f"{how['count']} shards; each {how['by']} is in one of them")
    send(url, prepared, lambda found: shards.predict(found, prepared), numbers=numbers)
    if len(prepared.labels) and all(find_spec(one.library) for one in recipe.steps):
        limits = Limits(FIT_SECONDS, FIT_MEMORY_BYTES)
        with shown():
            found = shards.predict_unsharded(rows, recipe, prepared.features, limits)
        click.echo(
            f"one model of all rows: {measured(found, prepared.labels, numbers=numbers)}"
        )
