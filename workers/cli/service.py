"""Operator requests of commands to a running service."""

import re
import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.decorators import FC

from lethe.cli.options import plain
from lethe.cli.saved import token_for
from lethe.cli.text.waiting import Passing, Waiting, on_terminal

if TYPE_CHECKING:
    from lethe.client import Client


_META = "lethe.decisions"  # key of the options in the command's context


def connect(url: str) -> "Client":
    """Return a client with the operator's token, LETHE_TOKEN or that of `lethe login`."""
    from lethe.client import Client

    sending = Sending() if on_terminal() else Passing("sending").tell
    return Client(url, token=token_for(url), on_sent=sending)


def decision_options(command: FC) -> FC:
    """Add --decide and --cooling-off to a command that registers a model by `decided`."""
    decide = click.option(
        "--decide",
        type=click.Choice(["review", "at-once"]),
        expose_value=False,
        callback=partial(_note, "decide"),
        help="Execute requests after an officer's review, or at once. A key bound to the data "
        "that it erases needs no review. Default: as the service is set up.",
    )
    cooling_off = click.option(
        "--cooling-off",
        metavar="TIME",
        expose_value=False,
        callback=partial(_note, "cooling_off_seconds"),
        help="Time in which an approved request can still be withdrawn, such as 3600s or 2d. "
        "Default: none.",
    )
    return decide(cooling_off(command))


def decided(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest with the decision options of the running command."""
    return {**manifest, **click.get_current_context().meta.get(_META, {})}


def _note(field: str, context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    noted: str | int = value
    if field == "cooling_off_seconds":
        found = re.fullmatch(r"([0-9]{1,8})([sd])", value)
        if found is None:
            raise click.BadParameter("give seconds or days, such as 3600s or 2d")
        noted = int(found[1]) * (86_400 if found[2] == "d" else 1)
    context.meta.setdefault(_META, {})[field] = noted


class Sending:
    """A progress bar while a large body is sent; a resent body starts a new one."""

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


def _is_made(model: Mapping[str, Any]) -> bool:
    """Return whether a model is being made: one to be mended has no `failure`."""
    mended = model["state"] == "quarantined" and model["failure"] is None
    return mended or model["state"] == "registered"


def wait_until_ready(
    operator: "Client", ref: str, seconds: float, *, tell: bool = True
) -> Mapping[str, Any]:
    """Wait for a registered model's first version, or a mended one's next; return the model.

    tell: print the version.
    """
    from lethe.client.answers import parse_progress

    deadline = time.monotonic() + seconds
    told, begun = "", False
    with Waiting(ref) as waiting:
        while _is_made(state := operator.model(ref)):
            if time.monotonic() > deadline:
                raise click.ClickException(
                    f"{ref} is not fitted yet, and is fitted further: follow it with `lethe "
                    "model list`"
                )
            if (stalls := state.get("failure")) not in (None, told):
                waiting.clear()
                click.echo(plain(f"not fitted yet: {stalls}"), err=True)
                told = stalls
            waiting.tell("fitting", parse_progress(state))
            begun = True
            time.sleep(0.2)
        if begun and not waiting.live:
            waiting.tell(plain(str(state["state"])))
    if state["state"] == "quarantined":
        raise click.ClickException(plain(str(state["failure"])))
    if state["state"] != "ready":
        raise click.ClickException(
            plain(f"the fit failed: {state['failure']}; register it again, {ref} is free")
        )
    if tell:
        click.echo(plain(f"{ref} is ready at version {state['current_version']}"))
    return state
