"""`lethe model delete` and `lethe model mend`: its end, and its return to service."""

import click

from lethe.cli.options import as_json, count, print_json, service_url
from workers.cli import service


@click.command()
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
            click.echo(said, err=as_json)
            question = "Delete it for good, with all rows, keys and files?"
            click.confirm(question, abort=True, err=as_json)
        deleted = operator.delete_model(ref)
    if as_json:
        print_json(deleted)
        return
    click.echo(f"deleted {ref}: log entry {deleted['log_index']}")


MEND_SECONDS = 24 * 3600.0  # enough for a large network


@click.command()
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
