"""`lethe model`: register, list and download models; extractors run here, beside the data."""

import click

from lethe.cli.options import each_as_json, print_json, print_table, service_url
from workers.cli import service
from workers.cli.models.download import download, push
from workers.cli.models.forest import forest
from workers.cli.models.lifecycle import delete, mend
from workers.cli.models.network import network
from workers.cli.models.recipe import recipe
from workers.cli.models.ridge import ridge
from workers.cli.models.script import script
from workers.cli.models.show import schema, show
from workers.cli.models.sums import sums
from workers.cli.models.vectors import vectors


@click.group()
def model() -> None:
    """Register, list, download, mend and delete models (needs an operator's token)."""


@model.group()
def register() -> None:
    """Register a model, send its rows, and wait for its first version.

    Each kind of model has a command of its own.
    """


for kind in (forest, network, recipe, ridge, script, sums, vectors):
    register.add_command(kind)
for command in (delete, download, mend, push, schema, show):
    model.add_command(command)


@model.command("list")
@service_url
@each_as_json
def list_models(url: str, as_json: bool) -> None:
    """List models with their state and current version."""
    with service.connect(url) as operator:
        found = list(operator.models())  # pages are fetched lazily
    if as_json:
        for row in found:
            print_json(row)
        return
    print_table(
        ("model", "state", "version"),
        ((row["ref"], row["state"], str(row["current_version"] or "-")) for row in found),
    )
