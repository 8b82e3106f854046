"""`lethe model`: register and list models; the extractor runs here, beside the data."""

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from app.client import Client

FIT_SECONDS = 600


@click.group()
def model() -> None:
    """Register and list models (needs an operator's token in LETHE_TOKEN)."""


@model.command()
@click.option("--url", required=True, help="The service's base URL.")
@click.option("--ref", required=True, help="The model's reference, such as support-intents.")
@click.option(
    "--data",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An .npz with features, labels, clients; optionally records, is_test, label_names.",
)
@click.option(
    "--penalty", type=float, default=1.0, show_default=True, help="λ; fixed for good."
)
@click.option("--bits", type=click.IntRange(8, 16), default=16, show_default=True)
@click.option(
    "--random-features", type=int, help="Width of frozen random ReLU features; default: none."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random features.")
def register(
    url: str,
    ref: str,
    data: Path,
    penalty: float,
    bits: int,
    random_features: int | None,
    seed: int,
) -> None:
    """Register a ridge head over the features in DATA and wait until it is fitted."""
    from workers.cli.errors import shown
    from workers.datasets.npz import load_npz
    from workers.extractors.base import Extractor
    from workers.extractors.identity import Identity
    from workers.extractors.random_relu import RandomRelu
    from workers.registration import prepare

    with shown():
        federation = load_npz(data)
        width = federation.features.shape[1]
        extractor: Extractor = Identity(width)
        if random_features is not None:
            extractor = RandomRelu(width, random_features, seed)
        prepared = prepare(federation, extractor, ref=ref, bits=bits, penalty=penalty)
    with _client(url) as operator:
        operator.register_model(prepared.manifest, prepared.npz)
        click.echo(f"registered {len(prepared.records)} records, fitting …")
        deadline = time.monotonic() + FIT_SECONDS
        while (state := operator.model(ref))["state"] == "registered":
            if time.monotonic() > deadline:
                raise click.ClickException("not fitted yet: `lethe model list` shows when")
            time.sleep(0.2)
    if state["state"] != "ready":
        raise click.ClickException(f"the fit failed: {state['failure']}")
    click.echo(f"{ref} is ready at version {state['current_version']}")


@model.command("list")
@click.option("--url", required=True, help="The service's base URL.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_models(url: str, as_json: bool) -> None:
    """List models with their state and current version."""
    with _client(url) as operator:
        for row in operator.models():
            if as_json:
                click.echo(json.dumps(row))
            else:
                version = row["current_version"] or "-"
                click.echo(f"{row['ref']:32} {row['state']:10} version {version}")


def _client(url: str) -> "Client":
    from app.client import Client

    return Client(url, token=os.environ.get("LETHE_TOKEN"))
