"""`lethe model register --recipe`: an estimator of the catalogue over the rows in DATA."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workers.cli import service

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workers.registration.recipe import RecipeRegistration, RecipeRows
    from workers.training.recipes.recipe import Recipe

FIT_SECONDS = 3600
# Options of the command that do not apply to a recipe.
OF_RIDGE = (
    "penalty", "bits", "method", "rows", "verify", "least_contributors", "least_rows",
    "sketch_rank", "random_features", "seed", "extractor", "path", "parameters", "digest",
)  # fmt: skip

IN_THE_FILE = "set the parameters in the JSON file"


def register_recipe(
    url: str, ref: str, data: Path | None, file: Path, columns: Mapping[str, Any]
) -> None:
    """Register a recipe over the rows in DATA, wait until it is fitted, and measure it."""
    from workers.cli.errors import shown
    from workers.registration.recipe import prepare_recipe, read_recipe

    refuse_others(click.get_current_context())
    with shown():
        document = read_recipe(file)
        recipe = checked(document)
        numbers = not recipe.classifies
        known = document.get("categories")
        rows = read_rows(data, columns, numbers=numbers, categories=known)
        prepared = prepare_recipe(rows, document, ref=ref)
        check_manifest(prepared)
        check_rows(recipe, rows)

    def predict(file: bytes) -> "NDArray[Any]":
        from workers.training.recipes.files import decode

        return decode(file).predict(prepared.features)

    send(url, prepared, predict, numbers=numbers)


def send(
    url: str,
    prepared: "RecipeRegistration",
    predict: "Callable[[bytes], NDArray[Any]]",
    *,
    numbers: bool,
) -> None:
    """Register a packed model, wait until it is fitted, and measure it on held-out rows.

    predict: returns a model file's predictions for these. Raises click.ClickException on
    failure.
    """
    from workers.cli.errors import shown

    ref = prepared.manifest["ref"]
    with service.connect(url) as operator:
        operator.register_model(service.decided(prepared.manifest), prepared.npz)
        click.echo(f"registered {prepared.summary()}; fitting …")
        service.wait_until_ready(operator, ref, FIT_SECONDS)
        if len(prepared.labels):
            version = operator.model(ref)["current_version"]
            with shown():
                found = predict(operator.artifact(ref, int(version)))
            click.echo(measured(found, prepared.labels, numbers=numbers))


def refuse_others(context: click.Context, instead: str = IN_THE_FILE) -> None:
    """Raise click.UsageError for options of ridge heads. instead: what to use instead."""
    given = [
        param.opts[-1]
        for param in context.command.params
        if param.name in OF_RIDGE
        and context.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{', '.join(given)}: only for ridge heads; {instead}")


def check_manifest(prepared: "RecipeRegistration") -> None:
    """Raise click.ClickException if the service would refuse the manifest."""
    from pydantic import ValidationError

    from app.schemas.families.manifests import MANIFESTS
    from workers.cli.models.training import first_problem

    try:
        MANIFESTS[prepared.manifest["family"]].model_validate(prepared.manifest)
    except ValidationError as error:
        raise click.ClickException(first_problem(error)) from None


def checked(document: Mapping[str, Any]) -> "Recipe":
    """Return the recipe of a document that the service would accept.

    Raises:
        RefusedError: A parameter is not one of its class, if the class is installed here.
        click.ClickException: The service would refuse the document.
    """
    from importlib.util import find_spec

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
    recipe = Recipe.parse(wanted.spelled())
    if all(find_spec(step.library) is not None for step in recipe.steps):
        check(recipe)
    return recipe


def check_rows(recipe: "Recipe", rows: "RecipeRows") -> None:
    """Check that a recipe accepts the rows, if its libraries are installed here.

    Raises RefusedError, naming the first column with missing values if it accepts none.
    """
    from importlib.util import find_spec

    from workers.training.recipes import recipe as recipes

    if all(find_spec(step.library) is not None for step in recipe.steps):
        weighted = rows.weights is not None
        recipes.check_rows(recipe, rows.features, rows.names, weighted=weighted)


def check_categories(document: Mapping[str, Any]) -> None:
    """Raise click.ClickException if a file's `categories` are not lists of texts by name."""
    from pydantic import TypeAdapter, ValidationError

    from app.schemas.families.tables import Categories, Word
    from workers.cli.models.training import first_problem

    try:
        TypeAdapter(dict[Word, Categories]).validate_python(document.get("categories", {}))
    except ValidationError as error:
        raise click.ClickException(f"categories.{first_problem(error)}") from None


def read_rows(
    data: Path | None,
    columns: Mapping[str, Any],
    *,
    numbers: bool,
    categories: Mapping[str, Sequence[str]] | None = None,
    quiet: bool = False,
) -> "RecipeRows":
    """Return the labelled rows of DATA or of a query, and report the columns unless quiet.

    categories: for columns of texts, the values in the order of their numbers.

    Raises:
        RefusedError: As `open_rows`; or numbers to predict or categories without named columns.
        DatasetError: As `rows_of_table`.
    """
    from dataclasses import replace

    from workers.cli.data_options import open_labelled, open_rows, reads_table
    from workers.data.opening import taken
    from workers.errors import RefusedError
    from workers.registration.recipe import rows_of_federation, rows_of_table

    if data is None or reads_table(data, columns):
        table, unused = open_labelled(data, columns, numbers=numbers)
        lines = taken(table, unused).lines()
        rows = rows_of_table(table, categories=categories)
    else:
        if numbers or categories:
            raise RefusedError(
                "for numbers to predict or categories name the arrays of an .npz as columns: "
                "--label, --client, --record-id, --features"
            )
        opened = open_rows(data, columns)
        lines, rows = opened.taken.lines(), rows_of_federation(opened.federation)
    for line in [] if quiet else lines:
        click.echo(line)
    return replace(rows, send_held_out=bool(columns.get("send_holdout")))


def measured(found: "NDArray[Any]", labels: "NDArray[Any]", *, numbers: bool) -> str:
    """Return a model's score on the held-out rows as text, per shard if they are apart."""
    import numpy as np

    if found.ndim > 1:
        every = (measured(own, labels, numbers=numbers) for own in found)
        return "\n".join(f"shard {place}: {words}" for place, words in enumerate(every))
    count = len(labels)
    if not numbers:
        return f"accuracy on {count} held-out rows: {float(np.mean(found == labels)):.3f}"
    spread = float(np.sum((labels - labels.mean()) ** 2))
    error = float(np.sum((labels - found) ** 2))
    return (
        f"R² on {count} held-out rows: {1 - error / spread:.3f}" if spread else "R²: undefined"
    )
