"""`lethe demo`: the complete workflow on real data, from an empty directory, in one command."""

from pathlib import Path

import click

from lethe.catalogue import RIDGE

MASKED = "ridge-masked"  # ridge-exact on a model whose rows stay with ten data holders
# Networks: deep, or a head for the methods with noise.
HEADS = ("certified-newton", "noisy-finetuning")
NETWORK = ("puf-special", "puf-regular", "hf-kcu", "retrain", *HEADS)


@click.command()
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An .npz with features, labels, clients; for a network, except noisy-finetuning: "
    "images.",
)
@click.option(
    "--family",
    type=click.Choice(["recipe", "forest", "shards", "script", "vectors"]),
    help="recipe: gradient-boosted trees of scikit-learn; forest: an exact forest; shards: the "
    "recipe in eight shards; script: a training program; vectors: a flat index. Default: the "
    "family of --method.",
)
@click.option(
    "--method",
    type=click.Choice([*RIDGE, MASKED, *NETWORK]),
    default="ridge-exact",
    show_default=True,
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Output directory of certificates, keys, models and the log's mirror.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1, max=10_000),
    help="Training rounds of a network; fewer are faster but less accurate. Default: 12; 8 "
    "for images in --data.",
)
@click.option("--keep-serving", is_flag=True, help="Keep the service running afterwards.")
def demo(
    data: Path | None,
    family: str | None,
    method: str,
    out: Path,
    rounds: int | None,
    keep_serving: bool,
) -> None:
    """Register a model, send signed erasure requests, verify every certificate."""
    from workers.cli.errors import shown

    if family is not None:
        source = click.get_current_context().get_parameter_source("method")
        if rounds is not None or source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError("--method and --rounds are not for --family: leave them out")
        from workers.demo import tabular

        with shown():
            tabular.run(family, data, out, keep_serving)
        return
    if method in NETWORK:
        from workers.demo import network  # needs torch

        with shown():
            network.run(data, method, out, keep_serving, rounds)
        return
    if rounds is not None:
        raise click.UsageError(
            f"--rounds is for methods of networks only: leave it out with {method}"
        )
    from workers.demo.run import run

    with shown():
        if method == MASKED:
            run(data, "ridge-exact", out, keep_serving, masked=True)
        else:
            run(data, method, out, keep_serving)
