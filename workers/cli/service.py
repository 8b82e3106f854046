"""What commands ask of a running service as an operator."""

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from lethe.cli.waiting import Waiting, on_terminal

if TYPE_CHECKING:
    from lethe.client import Client


def connect(url: str) -> "Client":
    """Return a client with the operator's token of the environment."""
    from lethe.client import Client

    sending = Sending() if on_terminal() else None
    return Client(url, token=os.environ.get("LETHE_TOKEN"), on_sent=sending)


class Sending:
    """A bar while a large body is sent; a body that is sent again begins another."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Show how many bytes of a body are sent."""
        if self._bar is None or done < self._bar.pos:
            self._bar = click.progressbar(length=total, label="sending", file=sys.stderr)
            self._bar.render_progress()
        self._bar.update(done - self._bar.pos)
        if done == total:
            self._bar.render_finish()
            self._bar = None


def wait_until_ready(operator: "Client", ref: str, seconds: float) -> None:
    """Wait for a registered model's first version, and say which it is."""
    from lethe.client.answers import parse_progress

    deadline = time.monotonic() + seconds
    with Waiting(ref) as waiting:
        while (state := operator.model(ref))["state"] == "registered":
            if time.monotonic() > deadline:
                raise click.ClickException("not fitted yet: follow it with `lethe model list`")
            if (progress := parse_progress(state)) is not None:
                waiting.tell("registered", progress)
            time.sleep(0.2)
    if state["state"] != "ready":
        raise click.ClickException(f"the fit failed: {state['failure']}")
    click.echo(f"{ref} is ready at version {state['current_version']}")
