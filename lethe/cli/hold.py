"""`lethe hold`: legal holds on cases, requests and models."""

from typing import TYPE_CHECKING

import click

from lethe.cli.options import as_json, plain, print_json, print_table, service_url
from lethe.cli.saved import token_for

if TYPE_CHECKING:
    from lethe.client import Client


@click.group()
def hold() -> None:
    """Keep data from the end of its retention, for legal claims.

    Needs an operator's or officer's token in LETHE_TOKEN. A hold stops no erasure.
    """


@hold.command()
@service_url
@click.argument("ref")
@click.option("--reason", required=True, help="Why; stored sealed, and read by officers.")
@as_json
def place(url: str, ref: str, reason: str, as_json: bool) -> None:
    """Place a hold on the case, request or model REF."""
    with _client(url) as operator:
        placed = operator.place_hold(ref, reason)
    if as_json:
        print_json(placed)
        return
    words = f"{placed['id']} holds the {placed['of']} {placed['target']}"
    click.echo(plain(f"{words}: log entry {placed['log_index']}"))


@hold.command("list")
@service_url
@click.option("--released", is_flag=True, help="Also those that were released.")
@as_json
def list_(url: str, released: bool, as_json: bool) -> None:
    """List active holds."""
    with _client(url) as operator:
        found = list(operator.holds(released=released))
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one["id"],
            one["of"],
            one["target"],
            f"{one['placed_by']} {one['placed_at']}",
            "" if one["released_at"] is None else f"{one['released_by']} {one['released_at']}",
            one["reason"],
        )
        for one in found
    ]
    print_table(("hold", "of", "reference", "placed", "released", "reason"), rows)


@hold.command()
@service_url
@click.argument("hold_id", metavar="ID")
@as_json
def release(url: str, hold_id: str, as_json: bool) -> None:
    """Release the hold ID; whoever placed it cannot."""
    with _client(url) as operator:
        released = operator.release_hold(hold_id)
    if as_json:
        print_json(released)
        return
    click.echo(plain(f"released {released['id']}: log entry {released['release_index']}"))


def _client(url: str) -> "Client":
    from lethe.client import Client

    return Client(url, token=token_for(url))
