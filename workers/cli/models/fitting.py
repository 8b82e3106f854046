"""Shared by the commands that register a model of table rows: options, rows, the wait."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lethe.cli.options import plain, service_url
from workers.cli import service
from workers.cli.data_options import DATA, table_options, with_options

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from app.schemas.families.manifests import Manifest
    from workers.registration.recipe import RecipeRegistration, RecipeRows

FIT_SECONDS = 3600
FIT_MEMORY_BYTES = 8 << 30  # LETHE_FIT_MEMORY_BYTES in a service's default
SAMPLE_WEIGHT = click.option("--sample-weight", metavar="COLUMN", help="Weights of rows.")
ABOUT_DATA = (
    "DATA is a .parquet, .csv, .tsv, .feather or .arrow file, a folder of files of one format, "
    "or an .npz with features, labels and clients, optionally records, subjects, is_test, "
    "label_names and identity_KIND. Where an option names a column, the arrays of an .npz are "
    "columns, a matrix x those named x_0, x_1, …."
)


# DATA, and the options of the model and of its rows' columns; all but `url`, `ref` and `data`
# are for `read_rows`.
registration_options = with_options(
    (
        service_url,
        click.option(
            "--ref", required=True, help="The model's reference, such as support-intents."
        ),
        click.argument("data", type=DATA, required=False),
        table_options(),
        click.option(
            "--send-holdout",
            is_flag=True,
            help="Send the held-out rows too: every version is evaluated on them, none is "
            "trained on them.",
        ),
        service.decision_options,
    )
)


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


def check_manifest(manifest: Mapping[str, Any]) -> "Manifest":
    """Return a manifest as the service reads it, before any row is sent.

    Raises click.ClickException if the service would refuse it.
    """
    from pydantic import ValidationError

    from app.schemas.families.manifests import MANIFESTS
    from workers.cli.models.training import first_problem

    try:
        return MANIFESTS[manifest["family"]].model_validate(manifest)
    except ValidationError as error:
        raise click.ClickException(first_problem(error)) from None


def check_categories(document: Mapping[str, Any]) -> None:
    """Raise click.ClickException if a file's `categories` are not lists of texts by name."""
    from pydantic import TypeAdapter, ValidationError

    from app.schemas.families.tables import Categories
    from app.schemas.models import Word
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
    added: bool = False,
) -> "RecipeRows":
    """Return the labelled rows of DATA or of a query, and report the columns unless quiet.

    categories: for columns of texts, the values in the order of their numbers. added: to a
    model that has its classes.

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
        table, unused = open_labelled(data, columns, numbers=numbers, added=added)
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
        click.echo(plain(line))
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
