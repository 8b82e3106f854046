"""`lethe model register ridge`: a ridge head over features; the extractor runs here."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lethe.catalogue import RIDGE
from lethe.cli.options import plain
from lethe.cli.text.waiting import working
from workers.cli import service
from workers.cli.features import extractor_options
from workers.cli.models.fitting import ABOUT_DATA, registration_options

if TYPE_CHECKING:
    from workers.data.extractors.base import Extractor
    from workers.data.opening import OpenedData

FIT_SECONDS = 600
ROWS = ("rows", "statistics", "masked")


@click.command(epilog=ABOUT_DATA)
@registration_options
@click.option(
    "--penalty",
    type=float,
    default=1.0,
    show_default=True,
    help="Penalty λ; cannot be changed.",
)
@click.option(
    "--bits",
    type=click.IntRange(8, 16),
    default=16,
    show_default=True,
    help="Bits of a quantised feature.",
)
@click.option("--method", type=click.Choice(RIDGE), default="ridge-exact", show_default=True)
@click.option(
    "--rows",
    "rows",
    type=click.Choice(ROWS),
    default="rows",
    show_default=True,
    help="Where rows stay. rows: in the service. statistics, masked: with the clients; DATA "
    "then only calibrates the quantiser.",
)
@click.option(
    "--verify",
    type=click.Choice(["full", "freivalds", "alternate"]),
    default="freivalds",
    show_default=True,
    help="How the verifier recomputes the statistics.",
)
@click.option(
    "--least-contributors",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="With --rows masked: minimum members that add or release rows in a round.",
)
@click.option(
    "--least-rows",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="With --rows masked: minimum records added and released in a round.",
)
@click.option(
    "--sketch-rank", type=click.IntRange(min=1), help="With ridge-sketched: rows of a sketch."
)
@click.option(
    "--random-features", type=int, help="Width of frozen random ReLU features; default: none."
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the random features."
)
@extractor_options(required=False)
def ridge(
    url: str,
    ref: str,
    data: Path | None,
    send_holdout: bool,
    penalty: float,
    bits: int,
    method: str,
    rows: str,
    verify: str,
    least_contributors: int,
    least_rows: int,
    sketch_rank: int | None,
    random_features: int | None,
    seed: int,
    extractor: str | None,
    path: Path | None,
    parameters: dict[str, str],
    digest: str | None,
    **columns: Any,
) -> None:
    """Register a ridge head over features.

    Tables need --label. The digest of the extractor that DATA or --extractor names is
    registered too.
    """
    from workers.cli.data_options import open_rows
    from workers.cli.errors import shown
    from workers.data.extractors import registry
    from workers.registration.ridge import prepare

    with shown():
        rows_read = open_rows(data, columns)
        federation = rows_read.federation
        for line in rows_read.taken.lines():
            click.echo(plain(line))
        width = federation.features.shape[1]
        if random_features is not None and extractor is None:
            extractor = "random-relu"
            parameters = {"outputs": str(random_features), "seed": str(seed), **parameters}
        if extractor is not None:
            opened = registry.open_extractor(
                extractor, parameters, path=path, digest=digest, width=width
            )
        else:
            opened = _named_in(rows_read, digest)
        with working("extracting features"):
            prepared = prepare(
                federation,
                opened,
                ref=ref,
                method=method,
                bits=bits,
                penalty=penalty,
                data=rows,
                send_held_out=send_holdout,
            )
    manifest = {**prepared.manifest, "verification": {"statistics": verify}}
    names = rows_read.taken.features
    if not isinstance(names, int):  # of a table; a client's may have another order
        manifest["features"] = list(names)
    if rows == "masked":
        manifest["masked"] = {"contributors": least_contributors, "rows": least_rows}
    if sketch_rank is not None:
        manifest["sketch"] = {"rank": sketch_rank}
    with service.connect(url) as operator:
        if rows != "rows":
            operator.register_model(
                service.decided(manifest), prepared.npz if send_holdout else None
            )
            if send_holdout:
                click.echo(
                    "held-out rows are sent, sealed: every version is measured on them; no "
                    "other row is"
                )
            click.echo(f"registered {ref}: waiting for the statistics of its clients")
            if rows == "masked" and federation.identities:
                click.echo(
                    "identities are not sent here: members send those of their rows, hashed, "
                    "with `lethe round join`"
                )
            return
        operator.register_model(service.decided(manifest), prepared.npz)
        for line in prepared.lines():
            click.echo(line)
        click.echo(f"registered {prepared.summary()}; fitting …")
        service.wait_until_ready(operator, ref, FIT_SECONDS)


def _named_in(opened: "OpenedData", digest: str | None) -> "Extractor":
    """Return the extractor that computed the features, the identity if none is named."""
    from workers.data.extractors.identity import Identity
    from workers.data.extractors.registry import check_digest

    named = opened.extractor or Identity(opened.federation.features.shape[1])
    check_digest(named, digest)
    return named
