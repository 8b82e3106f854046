"""`lethe webhook`: notification endpoints, their deliveries, and replay."""

import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import click

from lethe.catalogue import NOTICES
from lethe.cli import saved
from lethe.cli.options import (
    as_json,
    count,
    plain,
    print_answer,
    print_json,
    print_list,
    print_rows,
    service_url,
)

_id = click.argument("webhook_id", metavar="ID")
limited = click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Maximum number of deliveries, newest first.",
)
of_delivery = click.option(
    "--delivery", metavar="DELIVERY", help="Only this one. Default: all failed ones."
)


@click.group()
def webhook() -> None:
    """Send signed notices (Standard Webhooks) to an endpoint of yours.

    Needs an operator's token in LETHE_TOKEN.
    """


def _on_endpoint(function: Callable[..., None]) -> click.Command:
    """Make a command of the group that takes --url, ID and --json, with its own options."""
    return webhook.command()(service_url(_id(as_json(function))))


@webhook.command()
@service_url
@click.argument("target", metavar="TARGET")
@click.option(
    "--event",
    "events",
    multiple=True,
    type=click.Choice(tuple(NOTICES)),
    metavar="EVENT",
    help=f"Repeatable. Default: all. One of {', '.join(NOTICES)}.",
)
@click.option("--model", help="Only notices of this model. Default: of all models.")
@click.option(
    "--signature",
    type=click.Choice(["v1", "v1a"]),
    default="v1",
    show_default=True,
    help="v1: HMAC-SHA256 with a shared secret. v1a: Ed25519; you get a public key.",
)
@as_json
def add(
    url: str,
    target: str,
    events: tuple[str, ...],
    model: str | None,
    signature: str,
    as_json: bool,
) -> None:
    """Send notices to the HTTPS URL TARGET. Prints the secret, once."""
    wanted = {
        "url": target,
        "events": list(events or NOTICES),
        "model": model,
        "signature": signature,
    }
    with saved.client(url) as operator:
        _print_made(operator.add_webhook(wanted), as_json)


@webhook.command("list")
@service_url
@as_json
def list_(url: str, as_json: bool) -> None:
    """List endpoints."""
    with saved.client(url) as operator:
        print_list(
            operator.webhooks(),
            as_json,
            ("id", "state", "model", "target"),
            lambda one: (
                one["id"],
                one["disabled"] or "in use",
                one["model"] or "all models",
                one["url"],
            ),
        )


@_on_endpoint
@limited
def show(url: str, webhook_id: str, limit: int, as_json: bool) -> None:
    """Show the endpoint ID and its deliveries: event, attempts, state, next attempt."""
    with saved.client(url) as operator:
        found = operator.webhook(webhook_id)
        sent = list(islice(operator.deliveries(webhook_id), limit))
    if as_json:
        print_json({**found, "deliveries": sent})
        return
    _print(found, as_json)
    print_deliveries(sent, as_json)


@_on_endpoint
@of_delivery
def replay(url: str, webhook_id: str, delivery: str | None, as_json: bool) -> None:
    """Resend failed notices to the endpoint ID; each notice keeps its webhook-id."""
    with saved.client(url) as operator:
        done = operator.replay_webhook(webhook_id, delivery)
    print_replayed(done, as_json)


@_on_endpoint
def test(url: str, webhook_id: str, as_json: bool) -> None:
    """Send a notice of type webhook.test to the endpoint ID now.

    Exits with 1 if the endpoint did not accept it.
    """
    with saved.client(url) as operator:
        done = operator.act_on_webhook(webhook_id, "test")
    text = f"{done['state']}: {done['answer'] or 'another attempt is under way'}"
    print_answer(done, as_json, text)
    if done["state"] != "delivered":
        sys.exit(1)


@_on_endpoint
def rotate(url: str, webhook_id: str, as_json: bool) -> None:
    """Create and print a new secret for the endpoint ID; the old one signs for 24 h more."""
    with saved.client(url) as operator:
        _print_made(operator.act_on_webhook(webhook_id, "rotate"), as_json)


@_on_endpoint
def disable(url: str, webhook_id: str, as_json: bool) -> None:
    """Stop sending to the endpoint ID until it is enabled; waiting deliveries fail."""
    with saved.client(url) as operator:
        _print(operator.act_on_webhook(webhook_id, "disable"), as_json)


@_on_endpoint
def enable(url: str, webhook_id: str, as_json: bool) -> None:
    """Resume sending to the endpoint ID; `replay` resends what failed meanwhile."""
    with saved.client(url) as operator:
        _print(operator.act_on_webhook(webhook_id, "enable"), as_json)


@_on_endpoint
def remove(url: str, webhook_id: str, as_json: bool) -> None:
    """Remove the endpoint ID and its secrets."""
    with saved.client(url) as operator:
        gone = operator.remove_webhook(webhook_id)
    print_removed(gone, as_json)


def print_deliveries(sent: Iterable[Mapping[str, Any]], as_json: bool) -> None:
    """Print deliveries."""
    print_list(
        sent,
        as_json,
        ("delivery", "event", "about", "state", "attempts", "answer", "next or ended"),
        lambda one: (
            one["id"],
            one["event"],
            one["about"],
            one["state"],
            str(one["attempts"]),
            one["answer"] or "-",
            one["next_at"] or one["ended_at"] or "-",
        ),
    )


def print_replayed(done: Mapping[str, Any], as_json: bool) -> None:
    """Print how many notices a replay sends again."""
    print_answer(done, as_json, f"{count(done['waiting'], 'notice')} will be sent again")


def print_removed(gone: Mapping[str, Any], as_json: bool) -> None:
    """Print what was removed."""
    print_answer(gone, as_json, f"removed {gone['id']}")


def _print_made(made: Mapping[str, Any], as_json: bool) -> None:
    _print(made, as_json)
    if as_json:
        return
    click.echo(plain(f"{made['secret']}"))
    what = (
        "the public key to verify with" if made["secret"].startswith("whpk_") else "the secret"
    )
    click.echo(f"This is {what}. It is not shown again.", err=True)


def _print(found: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows = [
        ("id", found["id"]),
        ("target", found["url"]),
        ("state", found["disabled"] or "in use"),
        ("model", found["model"] or "all models"),
        ("events", ", ".join(found["events"])),
    ]
    for one in found["secrets"]:
        until = f", until {one['until']}" if one["until"] else ""
        rows.append(("signature", f"{one['signature']}{until}"))
    print_rows(*rows, width=10)
