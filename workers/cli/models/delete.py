"""`lethe model delete`: a model with its rows, keys, files and identities."""

import click

from lethe.cli.options import service_url
from workers.cli import service


@click.command()
@service_url
@click.argument("ref")
@click.option("--yes", is_flag=True, help="Delete without asking.")
def delete(url: str, ref: str, yes: bool) -> None:
    """Delete the model REF for good: all versions, rows, keys and identities.

    Its log entries and certificates remain and stay verifiable. REF is never used again.
    Fails while a request, job, masked round, release or method audit of it is open.
    """
    with service.connect(url) as operator:
        model = operator.model(ref)
        if not yes:
            versions = sum(1 for _ in operator.versions(ref))
            click.echo(f"{ref} is {model['state']} and has {versions} versions.")
            click.confirm("Delete it for good, with all rows, keys and files?", abort=True)
        deleted = operator.delete_model(ref)
    click.echo(f"deleted {ref}: log entry {deleted['log_index']}")
