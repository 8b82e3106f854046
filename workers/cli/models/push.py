"""`lethe model push`: update an MLflow registry to the service's current version."""

import click

from lethe.cli.options import service_url
from workers.cli import service


@click.command()
@service_url
@click.argument("ref")
@click.option(
    "--mlflow",
    "tracking",
    required=True,
    help="MLflow's tracking URI, such as http://mlflow:5000 or sqlite:///mlflow.db.",
)
@click.option("--name", help="Name of the registered model in MLflow. Default: REF.")
def push(url: str, ref: str, tracking: str, name: str | None) -> None:
    """Push the current version of REF to MLflow; delete withdrawn versions there.

    MLflow's alias `current` names the pushed version; its tag `lethe.certificate` is the
    digest of the certified statement. Fails if files of a withdrawn version are still stored.
    """
    from workers.cli.errors import UnusableError, shown
    from workers.cli.models.download import fetch, native_suffix
    from workers.mlflow_store import MlflowStore

    with service.connect(url) as operator, shown():
        version, file, signature = fetch(operator, ref, "current")
        model = operator.model(ref)
        if (state := model["state"]) != "ready":
            raise UnusableError(f"{ref} is {state}: only a ready model can be pushed")
        withdrawn = [one["number"] for one in operator.versions(ref) if one["withdrawn_at"]]
        store = MlflowStore(tracking, name or ref)
        native = f"model.{native_suffix(model['config'], file)}"
        files = {native: file, f"{native}.sig": signature}
        made = store.push(ref, version, files)
        number = version["number"]
        if made is None:
            click.echo(f"{store.name} already has version {number} of {ref}")
        else:
            click.echo(f"{store.name} version {made} is version {number} of {ref}")
        for gone in store.delete_withdrawn(ref, withdrawn):
            click.echo(f"{store.name} version {gone} was withdrawn: deleted with its files")
