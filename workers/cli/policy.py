"""`lethe policy`: requirements of approximate erasures, written and checked beforehand."""

import json
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from workers.judge.policy.policy import LadderStep

PARTNERS = 0.75  # of held-out rows, as in workers.judge.policy.policy.default


@click.group()
def policy() -> None:
    """Write and check verification policies. They are part of a network's registration."""


@policy.command()
@click.option(
    "--rows",
    required=True,
    type=click.IntRange(min=1),
    help="Held-out rows of the client or person who leaves: their records times the held-out "
    "share, 414 for 2,070 records at 0.2.",
)
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of requests that share the error budget alpha.",
)
@click.option(
    "--method",
    default="puf-special",
    show_default=True,
    help="The model's default method; the ladder of further attempts starts after it.",
)
@click.option(
    "--references",
    type=click.IntRange(4, 256),
    help="Also attack with this many reference models; each judgement trains them.",
)
def default(rows: int, requests: int, method: str, references: int | None) -> None:
    """Print the default policy for clients or persons with ROWS held-out rows.

    If so few rows have no power, the policy requires more: verdicts will be INCONCLUSIVE, and
    erasures escalate to retraining.
    """
    from workers.cli.errors import shown
    from workers.judge.policy.document import to_document
    from workers.judge.policy.policy import default as choose

    with shown():
        _known(method)
        chosen = choose(rows, requests=requests, references=references, method=method)
    click.echo(json.dumps(to_document(chosen), indent=2))
    if chosen.minimum_pairs > PARTNERS * rows:
        least = ceil(chosen.minimum_pairs / PARTNERS)
        click.echo(
            f"{rows} rows can show no margin: this policy always escalates to the retraining. "
            f"It takes {least}",
            err=True,
        )


@policy.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def check(file: Path) -> None:
    """Check that FILE is a policy; print its digest and requirements."""
    from app.service.methods import spelled
    from workers.cli.errors import shown
    from workers.cli.policy_file import load
    from workers.judge.inference.sizes import minimum_pairs
    from workers.judge.policy.document import digest, write_ladder

    with shown():
        read = load(file)
        for attempt in read.ladder:
            _check_step(attempt)
        level = read.alpha / read.tests()
        needed = minimum_pairs(read.tau, level, read.power)
    click.echo(f"policy sha256 {digest(read)}")
    click.echo(
        f"{', '.join(read.attacks)}: within {read.tau} of chance, on at least "
        f"{read.minimum_pairs} matched pairs"
    )
    trainings = (read.references or 0) + bool(read.distances)
    if trainings:
        click.echo(f"trainings: each judgement trains {trainings} models of the retained size")
    names = [spelled(attempt) for attempt in write_ladder(read.ladder)]
    click.echo(f"ladder: the method asked for, {', '.join([*names, 'retrain'])}")
    if read.ladder:
        click.echo(f"budget: {read.budget:g} retrainings for all before the last")
    if read.ladder and find_spec("torch") is None:
        click.echo("Settings of methods were not checked: this needs torch", err=True)
    if read.minimum_pairs < needed:
        click.echo(f"Fewer than {needed} pairs rarely show that: expect INCONCLUSIVE", err=True)


@policy.command()
def schema() -> None:
    """Print the JSON schema of policies."""
    from workers.judge.policy.document import policy_schema

    click.echo(json.dumps(policy_schema(), indent=2))


def _known(method: str) -> None:
    """Raise RefusedError unless the service offers a method by default."""
    from lethe.catalogue import NETWORK
    from workers.errors import RefusedError

    if method not in NETWORK:
        raise RefusedError(f"method: choose one of {', '.join(NETWORK)}")


def _check_step(step: "LadderStep") -> None:
    """Raise RefusedError unless a step's method is known and, with torch, its settings too."""
    _known(step.method)
    if find_spec("torch") is not None:
        from workers.methods.network.registry import make

        make(step.method, step.settings)
