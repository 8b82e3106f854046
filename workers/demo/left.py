"""The files that a demonstration leaves behind."""

import os
import sys
from pathlib import Path

import click


def say_where(out: Path, base_url: str, serving: int | None) -> None:
    """Print the folders, a command to look at a certificate, and how to stop the service.

    serving: The process of the service at `base_url`, None if it was stopped.
    """
    click.echo(f"\n{out}/certificates  certificates      {out}/evidence  their evidence")
    click.echo(f"{out}/models        before, after     {out}/keys      verification keys")
    click.echo(f"{out}/log           the log's mirror, servable over plain HTTP\n")
    first = next(iter(sorted((out / "certificates").iterdir())))
    click.echo(f"Look at one:  {_lethe()} certificate show {first}")
    if serving is not None:
        click.echo(f"Still serving {base_url} (process {serving});")
        click.echo(f"stop it with: kill {serving}")


def _lethe() -> str:
    # As it can be typed here: `make demo` leaves the command in the virtual environment.
    command = Path(sys.executable).with_name("lethe")
    return os.path.relpath(command) if command.exists() else "lethe"
