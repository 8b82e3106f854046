"""`lethe model register --estimator`: ridge or naive Bayes from integer sums over DATA."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from workers.cli.models.recipe import check_manifest, read_rows, refuse_others, send

ESTIMATORS = ("ridge-regressor", "ridge-classifier", "gaussian-nb", "multinomial-nb")
OWN = ("alpha", "var_smoothing", "intercept", "exponent", "target_exponent")

_OPTIONS = (
    click.option(
        "--estimator",
        type=click.Choice(ESTIMATORS),
        help="Fit this from integer sums instead of a ridge head (docs/sums.md).",
    ),
    click.option(
        "--alpha",
        type=float,
        help="With --estimator: ridge's penalty, or what is added to each count. Default: 1.",
    ),
    click.option(
        "--var-smoothing",
        type=float,
        help="With gaussian-nb: share of the largest variance added to each. Default: 1e-9.",
    ),
    click.option(
        "--intercept/--no-intercept",
        default=None,
        help="With ridge-*: a constant that is not penalised. Default: with it.",
    ),
    click.option(
        "--sample-weight",
        metavar="COLUMN",
        help="With --recipe: weights of rows. With --estimator: rounded to multiples of "
        "1/16, at most 256.",
    ),
    click.option(
        "--exponent",
        type=int,
        help="With --estimator: features are rounded to multiples of 2^INTEGER. Default: -16.",
    ),
    click.option(
        "--target-exponent", type=int, help="With ridge-regressor: the same of the label."
    ),
)


def sums_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of models of integer sums."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def options_of(context: click.Context) -> dict[str, Any]:
    """Return an estimator's options in a command, empty if it names none.

    Raises click.UsageError if it has options for another kind of estimator.
    """
    given = {name: context.params[name] for name in ("estimator", *OWN)}
    found = {name: value for name, value in given.items() if value is not None}
    if "estimator" in found:
        return found
    if found:
        raise click.UsageError(f"--{next(iter(found)).replace('_', '-')} needs --estimator")
    weighted = context.params["sample_weight"] is not None
    if weighted and context.params["recipe"] is None and context.params["script"] is None:
        raise click.UsageError("--sample-weight needs --estimator, --recipe or --script")
    return {}


def register_sums(
    url: str,
    ref: str,
    data: Path | None,
    options: Mapping[str, Any],
    columns: Mapping[str, Any],
) -> None:
    """Register an estimator over the rows in DATA, wait until it is fitted, and measure it."""
    from workers.cli.errors import shown
    from workers.registration import sums

    refuse_others(click.get_current_context(), "leave them out, or --estimator")
    numbers = options["estimator"] == "ridge-regressor"
    weight = columns["sample_weight"]
    with shown():
        rows = read_rows(data, columns, numbers=numbers)
        prepared = sums.prepare_sums(rows, options, ref=ref, weight=weight)
        check_manifest(prepared)
    if weight is not None:
        click.echo(f"weights: {weight}, rounded to multiples of 1/{sums.STEPS}")
    send(url, prepared, lambda found: sums.predict(found, prepared), numbers=numbers)
