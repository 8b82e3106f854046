"""What commands ask of a running service as an operator."""

import os
import time
from typing import TYPE_CHECKING

import click

from lethe.cli.waiting import Waiting

if TYPE_CHECKING:
    from lethe.client import Client


def connect(url: str) -> "Client":
    """Return a client with the operator's token of the environment."""
    from lethe.client import Client

    return Client(url, token=os.environ.get("LETHE_TOKEN"))


def wait_until_ready(operator: "Client", ref: str, seconds: float) -> None:
    """Wait for a registered model's first version, and say which it is."""
    from lethe.client.answers import parse_progress

    deadline = time.monotonic() + seconds
    with Waiting(ref) as waiting:
        while (state := operator.model(ref))["state"] == "registered":
            if time.monotonic() > deadline:
                raise click.ClickException("not fitted yet: `lethe model list` shows when")
            if (progress := parse_progress(state)) is not None:
                waiting.tell("registered", progress)
            time.sleep(0.2)
    if state["state"] != "ready":
        raise click.ClickException(f"the fit failed: {state['failure']}")
    click.echo(f"{ref} is ready at version {state['current_version']}")
