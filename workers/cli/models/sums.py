"""`lethe model register sums`: ridge or naive Bayes from integer sums over DATA."""

from pathlib import Path
from typing import Any

import click

from workers.cli.models.fitting import (
    ABOUT_DATA,
    check_manifest,
    read_rows,
    registration_options,
    send,
)

ESTIMATORS = ("ridge-regressor", "ridge-classifier", "gaussian-nb", "multinomial-nb")


@click.command(epilog=ABOUT_DATA)
@click.argument("estimator", type=click.Choice(ESTIMATORS))
@registration_options
@click.option(
    "--alpha",
    type=float,
    help="The ridge penalty, or the smoothing added to each count. Default: 1.",
)
@click.option(
    "--var-smoothing",
    type=float,
    help="With gaussian-nb: share of the largest variance added to each. Default: 1e-9.",
)
@click.option(
    "--intercept/--no-intercept",
    default=None,
    help="With ridge-*: fit an unpenalised intercept. Default: yes.",
)
@click.option(
    "--sample-weight",
    metavar="COLUMN",
    help="Weights of rows, rounded to multiples of 1/16, at most 256.",
)
@click.option(
    "--exponent",
    type=int,
    help="Features are rounded to multiples of 2^INTEGER. Default: -16.",
)
@click.option(
    "--target-exponent", type=int, help="With ridge-regressor: the same for the label."
)
def sums(
    url: str,
    ref: str,
    estimator: str,
    data: Path | None,
    alpha: float | None,
    var_smoothing: float | None,
    intercept: bool | None,
    exponent: int | None,
    target_exponent: int | None,
    **columns: Any,
) -> None:
    """Register ridge regression or naive Bayes.

    It is computed from integer sums over the rows in DATA (docs/sums.md) and measured on
    held-out rows.
    """
    from workers.cli.errors import shown
    from workers.registration import sums as of_sums

    given = {
        "estimator": estimator,
        "alpha": alpha,
        "var_smoothing": var_smoothing,
        "intercept": intercept,
        "exponent": exponent,
        "target_exponent": target_exponent,
    }
    options = {name: value for name, value in given.items() if value is not None}
    numbers = estimator == "ridge-regressor"
    weight = columns["sample_weight"]
    with shown():
        rows = read_rows(data, columns, numbers=numbers)
        prepared = of_sums.prepare_sums(rows, options, ref=ref, weight=weight)
        check_manifest(prepared.manifest)
    if weight is not None:
        click.echo(f"weights: {weight}, rounded to multiples of 1/{of_sums.STEPS}")
    send(url, prepared, lambda found: of_sums.predict(found, prepared), numbers=numbers)
