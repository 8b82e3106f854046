"""`lethe hold`: legal holds on cases, requests and models."""

import click

from lethe.cli import saved
from lethe.cli.options import as_json, print_answer, print_list, service_url


@click.group()
def hold() -> None:
    """Place and release legal holds, which keep data past the end of its retention.

    Needs an operator's or officer's token in LETHE_TOKEN. A hold stops no erasure.
    """


@hold.command()
@service_url
@click.argument("ref")
@click.option(
    "--reason", required=True, help="Reason for the hold; stored sealed, readable by officers."
)
@as_json
def place(url: str, ref: str, reason: str, as_json: bool) -> None:
    """Place a hold on the case, request or model REF."""
    with saved.client(url) as operator:
        placed = operator.place_hold(ref, reason)
    words = f"{placed['id']} holds the {placed['of']} {placed['target']}"
    print_answer(placed, as_json, f"{words}: log entry {placed['log_index']}")


@hold.command("list")
@service_url
@click.option("--released", is_flag=True, help="Include released holds.")
@as_json
def list_(url: str, released: bool, as_json: bool) -> None:
    """List active holds."""
    with saved.client(url) as operator:
        print_list(
            operator.holds(released=released),
            as_json,
            ("hold", "of", "reference", "placed", "released", "reason"),
            lambda one: (
                one["id"],
                one["of"],
                one["target"],
                f"{one['placed_by']} {one['placed_at']}",
                f"{one['released_by']} {one['released_at']}" if one["released_at"] else "",
                one["reason"],
            ),
        )


@hold.command()
@service_url
@click.argument("hold_id", metavar="ID")
@as_json
def release(url: str, hold_id: str, as_json: bool) -> None:
    """Release the hold ID; whoever placed it cannot."""
    with saved.client(url) as operator:
        released = operator.release_hold(hold_id)
    text = f"released {released['id']}: log entry {released['release_index']}"
    print_answer(released, as_json, text)
