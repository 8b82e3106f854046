"""`lethe model register recipe`: an estimator of the catalogue, or one for each shard."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lethe.cli.options import FILE
from workers.cli.models.fitting import (
    ABOUT_DATA,
    FIT_MEMORY_BYTES,
    FIT_SECONDS,
    SAMPLE_WEIGHT,
    check_categories,
    check_manifest,
    measured,
    read_rows,
    registration_options,
    send,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workers.registration.recipe import RecipeRegistration, RecipeRows
    from workers.training.recipes.recipe import Recipe

# The modules that read a model's file.
ONE, SHARDS = "workers.training.recipes.files", "workers.training.shards.predict"


@click.command(epilog=ABOUT_DATA)
@click.argument("file", type=FILE, metavar="RECIPE")
@registration_options
@SAMPLE_WEIGHT
@click.option(
    "--shards",
    type=click.IntRange(2, 256),
    help="Number of shards of the rows; each is fitted separately (docs/shards.md).",
)
@click.option(
    "--aggregate",
    type=click.Choice(["mean", "vote", "apart"]),
    help="With --shards: mean of the probabilities or numbers (default), vote, or each apart.",
)
def recipe(
    url: str,
    ref: str,
    file: Path,
    data: Path | None,
    shards: int | None,
    aggregate: str | None,
    **columns: Any,
) -> None:
    """Register an estimator of scikit-learn, LightGBM or XGBoost.

    RECIPE is a JSON file (docs/recipes.md). The estimator is fitted to the rows in DATA and
    measured on held-out rows; shards are compared with one model of all rows.
    """
    from workers.cli.errors import shown
    from workers.registration.recipe import prepare_recipe, read_recipe

    if aggregate is not None and shards is None:
        raise click.UsageError("--aggregate needs --shards")
    with shown():
        document = read_recipe(file)
        wanted = _checked(document)
        numbers = not wanted.classifies
        known = document.get("categories")
        rows = read_rows(data, columns, numbers=numbers, categories=known)
        if shards is None:
            prepared = prepare_recipe(rows, document, ref=ref)
        else:
            from workers.registration.shards import prepare_shards

            options = {"count": shards, "aggregate": aggregate or "mean"}
            prepared = prepare_shards(rows, document, options, ref=ref)
        check_manifest(prepared.manifest)
        _check_rows(wanted, rows)
    if shards is not None:
        _send_shards(url, prepared, rows, wanted)
        return

    send(url, prepared, _predictor(prepared, ONE), numbers=numbers)


def _send_shards(
    url: str, prepared: "RecipeRegistration", rows: "RecipeRows", recipe: "Recipe"
) -> None:
    """Register shards, wait, and compare them with one model of all rows."""
    from workers.cli.errors import shown
    from workers.registration import shards
    from workers.training.recipes.process import Limits

    numbers = not recipe.classifies
    how = prepared.manifest["shards"]
    click.echo(f"{how['count']} shards; each {how['by']} is in one of them")
    send(url, prepared, _predictor(prepared, SHARDS), numbers=numbers)
    if len(prepared.labels) and _is_installed(recipe):
        limits = Limits(FIT_SECONDS, FIT_MEMORY_BYTES)
        with shown():
            found = shards.predict_unsharded(rows, recipe, prepared.features, limits)
        click.echo(
            f"one model of all rows: {measured(found, prepared.labels, numbers=numbers)}"
        )


def _predictor(
    prepared: "RecipeRegistration", reader: str
) -> "Callable[[bytes], NDArray[Any]]":
    """Return what predicts the held-out rows by a file of the service.

    It is read in a process with limits: on a malformed file the library of a booster crashes,
    loops, or takes gigabytes.
    """
    from workers.training.recipes.process import Limits, predict

    limits = Limits(FIT_SECONDS, FIT_MEMORY_BYTES)
    return lambda file: predict(file, prepared.features, limits, reader)


def _checked(document: Mapping[str, Any]) -> "Recipe":
    """Return the recipe of a document that the service would accept.

    Raises:
        RefusedError: A parameter is not one of its class, if the class is installed here.
        click.ClickException: The service would refuse the document.
    """
    from pydantic import ValidationError

    from app.schemas.families.recipes import RecipeDocument
    from workers.cli.models.training import first_problem
    from workers.training.recipes.recipe import Recipe, check

    check_categories(document)
    own = {name: value for name, value in document.items() if name != "categories"}
    try:
        wanted = RecipeDocument.model_validate(own)
    except ValidationError as error:
        raise click.ClickException(first_problem(error)) from None
    found = Recipe.parse(wanted.spelled())
    if _is_installed(found):
        check(found)
    return found


def _check_rows(recipe: "Recipe", rows: "RecipeRows") -> None:
    """Check that a recipe accepts the rows, if its libraries are installed here.

    Raises RefusedError, naming the first column with missing values if it accepts none.
    """
    from workers.training.recipes import recipe as recipes

    if _is_installed(recipe):
        weighted = rows.weights is not None
        recipes.check_rows(recipe, rows.features, rows.names, weighted=weighted)


def _is_installed(recipe: "Recipe") -> bool:
    return all(find_spec(step.library) is not None for step in recipe.steps)
