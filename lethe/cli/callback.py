"""`lethe callback`: deliveries to the addresses in requests, and replay."""

from itertools import islice

import click

from lethe.cli import saved
from lethe.cli.options import as_json, print_answer, print_list, service_url
from lethe.cli.webhook import (
    limited,
    of_delivery,
    print_deliveries,
    print_removed,
    print_replayed,
)

_id = click.argument("callback_id", metavar="ID")


@click.group()
def callback() -> None:
    """Follow the callbacks of requests. Their addresses are not shown.

    All but `key` need an operator's token in LETHE_TOKEN.
    """


@callback.command()
@service_url
@as_json
def key(url: str, as_json: bool) -> None:
    """Print the public key that callbacks are verified with."""
    from lethe.client import Client

    with Client(url) as service:
        found = service.callback_key()
    print_answer({"key": found}, as_json, found)


@callback.command("list")
@service_url
@click.option("--ref", help="Only of this request: its reference, or the id of an agent.")
@as_json
def list_(url: str, ref: str | None, as_json: bool) -> None:
    """List the callbacks of open requests."""
    with saved.client(url) as operator:
        print_list(
            operator.callbacks(ref),
            as_json,
            ("id", "kind", "asked by", "request", "delivered state"),
            lambda one: (
                one["id"],
                one["kind"],
                one["owner"],
                one["request"],
                one["delivered_state"] or "-",
            ),
        )


@callback.command()
@service_url
@_id
@limited
@as_json
def show(url: str, callback_id: str, limit: int, as_json: bool) -> None:
    """Show the deliveries of the callback ID: entry, attempts, state, next attempt."""
    with saved.client(url) as operator:
        print_deliveries(islice(operator.callback_deliveries(callback_id), limit), as_json)


@callback.command()
@service_url
@_id
@of_delivery
@as_json
def replay(url: str, callback_id: str, delivery: str | None, as_json: bool) -> None:
    """Resend failed deliveries of the callback ID, unless a newer state superseded them."""
    with saved.client(url) as operator:
        done = operator.replay_callback(callback_id, delivery)
    print_replayed(done, as_json)


@callback.command()
@service_url
@_id
@as_json
def remove(url: str, callback_id: str, as_json: bool) -> None:
    """Destroy the address of the callback ID; nothing more is sent to it."""
    with saved.client(url) as operator:
        gone = operator.remove_callback(callback_id)
    print_removed(gone, as_json)
