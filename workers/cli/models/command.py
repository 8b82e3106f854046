"""`lethe model`: register, list and download models; extractors run here, beside the data."""

import click

from lethe.cli.options import (
    as_json,
    count,
    each_as_json,
    plain,
    print_json,
    print_table,
    service_url,
)
from workers.cli import service
from workers.cli.models.download import download, push
from workers.cli.models.forest import forest
from workers.cli.models.network import network
from workers.cli.models.recipe import recipe
from workers.cli.models.ridge import ridge
from workers.cli.models.script import script
from workers.cli.models.show import schema, show
from workers.cli.models.sums import sums
from workers.cli.models.vectors import vectors

MEND_SECONDS = 24 * 3600.0  # enough for a large network


@click.group()
def model() -> None:
    """Register, list, download, mend and delete models.

    Needs an operator's token in LETHE_TOKEN; to list, show or download, an officer's or
    auditor's suffices.
    """


@model.group()
def register() -> None:
    """Register a model, send its rows, and wait for its first version.

    Each kind of model has a command of its own.
    """


for kind in (forest, network, recipe, ridge, script, sums, vectors):
    register.add_command(kind)
for command in (download, push, schema, show):
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


@model.command()
@service_url
@click.argument("ref")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@as_json
def delete(url: str, ref: str, yes: bool, as_json: bool) -> None:
    """Delete the model REF for good: all versions, rows, keys and identities.

    Its log entries and certificates remain and stay verifiable. REF is never used again.
    Fails while a request, job, masked round, release or method audit of it is open.
    """
    with service.connect(url) as operator:
        model = operator.model(ref)
        if not yes:
            versions = sum(1 for _ in operator.versions(ref))
            said = f"{ref} is {model['state']} and has {count(versions, 'version')}."
            click.echo(plain(said), err=as_json)
            question = "Delete it for good, with all rows, keys and files?"
            click.confirm(question, abort=True, err=as_json)
        deleted = operator.delete_model(ref)
    if as_json:
        print_json(deleted)
        return
    click.echo(plain(f"deleted {ref}: log entry {deleted['log_index']}"))


@model.command()
@service_url
@click.argument("ref")
@as_json
def mend(url: str, ref: str, as_json: bool) -> None:
    """Rebuild the quarantined model REF from its stored rows and return it to service.

    Only if the log says that these are the rows of its last version: otherwise the model stays
    quarantined, and the reason is printed. Decide on waiting requests first (`lethe request
    decide`).
    """
    with service.connect(url) as operator:
        operator.mend_model(ref)
        mended = service.wait_until_ready(operator, ref, MEND_SECONDS, tell=not as_json)
    if as_json:
        print_json(mended)
