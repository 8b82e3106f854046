"""`lethe model mend`: refit a quarantined model from its rows."""

import click

from lethe.cli.options import as_json, print_json, service_url
from workers.cli import service

MEND_SECONDS = 24 * 3600.0  # enough for a large network


@click.command()
@service_url
@click.argument("ref")
@as_json
def mend(url: str, ref: str, as_json: bool) -> None:
    """Make the quarantined model REF anew from its stored rows and return it to service.

    Only if the log says that these are the rows of its last version: otherwise the model stays
    quarantined, and the reason is printed. Decide on waiting requests first (`lethe request
    decide`).
    """
    with service.connect(url) as operator:
        operator.mend_model(ref)
        mended = service.wait_until_ready(operator, ref, MEND_SECONDS, tell=not as_json)
    if as_json:
        print_json(mended)
