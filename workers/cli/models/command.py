"""`lethe model`: register and list models; the extractor runs here, beside the data."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lethe.catalogue import RIDGE
from lethe.cli.options import each_as_json, print_json, print_table, service_url
from workers.cli import service
from workers.cli.data_options import DATA, table_options
from workers.cli.features import extractor_options
from workers.cli.models.download import download, push
from workers.cli.models.lifecycle import delete, mend
from workers.cli.models.network import register_network
from workers.cli.models.show import schema, show
from workers.cli.models.sums import sums_options

if TYPE_CHECKING:
    from workers.data.extractors.base import Extractor
    from workers.data.opening import OpenedData

FIT_SECONDS = 600
ROWS = ("rows", "statistics", "masked")


@click.group()
def model() -> None:
    """Register, list, download, mend and delete models (needs an operator's token)."""


model.add_command(delete)
model.add_command(mend)
model.add_command(download)
model.add_command(push)
model.add_command(register_network)
model.add_command(schema)
model.add_command(show)


@model.command()
@service_url
@click.option("--ref", required=True, help="The model's reference, such as support-intents.")
@click.argument("data", type=DATA, required=False)
@table_options()
@click.option(
    "--send-holdout",
    is_flag=True,
    help="Send the held-out rows too: every version is measured on them, none learns them.",
)
@click.option(
    "--recipe",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON file: fit this estimator instead of a ridge head (docs/recipes.md).",
)
@click.option(
    "--shards",
    type=click.IntRange(2, 256),
    help="With --recipe or --script: fit it to so many shares of the rows (docs/shards.md).",
)
@click.option(
    "--aggregate",
    type=click.Choice(["mean", "vote", "apart"]),
    help="With --shards: mean of the probabilities or numbers (default), vote, or each apart.",
)
@click.option(
    "--forest",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON file: fit this exact forest instead of a ridge head (docs/forests.md).",
)
@click.option(
    "--script",
    type=click.Path(exists=True, path_type=Path),
    help="Folder with script.json, or that file: run this training program instead of a ridge "
    "head (docs/scripts.md).",
)
@click.option(
    "--weights",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --script: a model trained elsewhere; say how far the program's run is from it.",
)
@click.option(
    "--public",
    type=click.Path(exists=True, path_type=Path),
    help="With --forest: rows that are never erased; their quantiles become the bin edges.",
)
@click.option(
    "--bins",
    type=click.Choice(["declared", "held-out"]),
    help="With --forest. held-out: quantiles of the held-out rows become the bin edges, and "
    "change when one is erased. declared (default): edges of the JSON file, or of --public.",
)
@sums_options
@click.option(
    "--vectors",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON file: build this vector index instead of a ridge head (docs/vectors.md).",
)
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
@service.decision_options
def register(
    url: str,
    ref: str,
    data: Path | None,
    send_holdout: bool,
    recipe: Path | None,
    shards: int | None,
    aggregate: str | None,
    forest: Path | None,
    script: Path | None,
    weights: Path | None,
    public: Path | None,
    bins: str | None,
    vectors: Path | None,
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
    """Register a ridge head or another model, send the rows in DATA, and wait.

    --recipe, --forest, --estimator, --script and --vectors name the other ones.

    DATA is a .parquet, .csv, .tsv, .feather or .arrow file, a folder of files of one format,
    or an .npz with features, labels and clients, optionally records, subjects, is_test,
    label_names and identity_KIND. Tables need --label, but for --vectors. Where an option
    names a column, the arrays of an .npz are columns, a matrix x those named x_0, x_1, ….

    A ridge head also registers the digest of the extractor named by DATA or --extractor.
    """
    from workers.cli.data_options import open_rows
    from workers.cli.errors import shown
    from workers.cli.models.forest import register_forest
    from workers.cli.models.recipe import register_recipe
    from workers.cli.models.script import register_script
    from workers.cli.models.shards import register_shards
    from workers.cli.models.sums import options_of, register_sums
    from workers.cli.models.vectors import register_vectors
    from workers.data.extractors import registry
    from workers.registration.ridge import prepare

    columns = {**columns, "send_holdout": send_holdout}
    sums = options_of(click.get_current_context())
    if sum(bool(one) for one in (recipe, forest, script, vectors, sums)) > 1:
        raise click.UsageError(
            "give one of --recipe, --forest, --estimator, --script and --vectors"
        )
    if public is not None and forest is None:
        raise click.UsageError("--public needs --forest")
    if bins is not None and forest is None:
        raise click.UsageError("--bins needs --forest")
    if weights is not None and script is None:
        raise click.UsageError("--weights needs --script")
    if shards is not None and recipe is None and script is None:
        raise click.UsageError("--shards needs --recipe or --script")
    if aggregate is not None and (shards is None or recipe is None):
        raise click.UsageError("--aggregate needs --recipe and --shards; scripts answer apart")
    if shards is not None and weights is not None:
        raise click.UsageError("--weights: shards are compared with no other model")
    if script is not None:
        register_script(url, ref, data, script, weights, shards, columns)
        return
    if recipe is not None and shards is not None:
        options = {"count": shards, "aggregate": aggregate or "mean"}
        register_shards(url, ref, data, recipe, options, columns)
        return
    if sums:
        register_sums(url, ref, data, sums, columns)
        return
    if recipe is not None:
        register_recipe(url, ref, data, recipe, columns)
        return
    if forest is not None:
        register_forest(url, ref, data, forest, public, bins or "declared", columns)
        return
    if vectors is not None:
        register_vectors(url, ref, data, vectors, columns)
        return
    with shown():
        rows_read = open_rows(data, columns)
        federation = rows_read.federation
        for line in rows_read.taken.lines():
            click.echo(line)
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
        click.echo(f"registered {prepared.summary()}; fitting …")
        service.wait_until_ready(operator, ref, FIT_SECONDS)


@model.command("list")
@service_url
@each_as_json
def list_models(url: str, as_json: bool) -> None:
    """List models with their state and current version."""
    with service.connect(url) as operator:
        found = list(operator.models())  # pages are fetched lazily
    if as_json:
        for row in found:
            print_json(row)
        return
    print_table(
        ("model", "state", "version"),
        ((row["ref"], row["state"], str(row["current_version"] or "-")) for row in found),
    )


def _named_in(opened: "OpenedData", digest: str | None) -> "Extractor":
    """Return the extractor that computed the features, the identity if none is named."""
    from workers.data.extractors.identity import Identity
    from workers.data.extractors.registry import check_digest

    named = opened.extractor or Identity(opened.federation.features.shape[1])
    check_digest(named, digest)
    return named
