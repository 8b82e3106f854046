"""A line that is rewritten while somebody waits: what state, for how long."""

import sys
import time

import click


class Waiting:
    """Progress on stderr; in a file only what changes, a line each."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._live = sys.stderr.isatty()
        self._started = time.monotonic()
        self._last = ""

    def tell(self, state: str) -> None:
        """Say in what state that which is waited for is."""
        seconds = time.monotonic() - self._started
        if self._live:
            spinner = "|/-\\"[int(seconds * 4) % 4]
            text = f"\r  {spinner} {self._what}: {state}, {seconds:.0f} s    "
            click.echo(text, err=True, nl=False)
        elif state != self._last:
            click.echo(f"  {self._what}: {state} after {seconds:.1f} s", err=True)
        self._last = state

    def end(self) -> float:
        """Clear the line; return the seconds that were waited."""
        if self._live:
            click.echo("\r" + " " * 72 + "\r", err=True, nl=False)
        return time.monotonic() - self._started
