"""`lethe model register-network`: a deep model with its rows, its training and its policy."""

import json
from pathlib import Path
from typing import Any

import click

from app.options import service_url

TRAIN_SECONDS = 24 * 3600
NETWORKS = ("logistic", "mit-b0", "res-unet", "resnet18", "simple-cnn", "vit-lite")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("register-network")
@service_url
@click.option("--ref", required=True, help="The model's reference, such as x-rays.")
@click.option(
    "--data",
    required=True,
    type=FILE,
    help="An .npz: inputs, labels, clients (and records, subjects); or images with --deal.",
)
@click.option(
    "--deal",
    nargs=2,
    type=(click.IntRange(min=2), float),
    help="Deal images to so many clients by Dirichlet of this alpha: for experiments.",
)
@click.option("--network", type=click.Choice(NETWORKS), default="simple-cnn", show_default=True)
@click.option("--method", default="puf-special", show_default=True, help="The default method.")
@click.option("--rounds", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--epochs", type=float, default=1.0, show_default=True, help="Local, per round.")
@click.option("--batch-size", type=click.IntRange(min=1), default=32, show_default=True)
@click.option("--learning-rate", type=float, default=0.1, show_default=True)
@click.option("--momentum", type=float, default=0.0, show_default=True)
@click.option("--weight-decay", type=float, default=0.0, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--held-out", type=float, default=0.2, show_default=True, help="Never trained on."
)
@click.option(
    "--policy", type=FILE, help="See `lethe policy`; default: for the largest client."
)
@click.option("--settings", type=FILE, help="JSON: settings of methods by name.")
@click.option("--canary", type=FILE, help="JSON: a trigger and its target class.")
def register_network(
    url: str,
    ref: str,
    data: Path,
    deal: tuple[int, float] | None,
    network: str,
    method: str,
    rounds: int,
    epochs: float,
    batch_size: int,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
    seed: int,
    held_out: float,
    policy: Path | None,
    settings: Path | None,
    canary: Path | None,
) -> None:
    """Register a network over the rows in DATA and wait until it is trained.

    Everything that decides how it is trained and what an erasure must show is fixed now,
    and its digest is logged.
    """
    from workers.cli.errors import shown
    from workers.cli.model import connect, wait_until_ready
    from workers.cli.policy_file import load
    from workers.datasets.image_npz import load_image_npz
    from workers.network_registration import (
        NetworkOptions,
        deal_out,
        prepare_network,
        prepare_rows,
    )

    local = {
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "momentum": momentum,
        "weight_decay": weight_decay,
    }
    with shown():
        options = NetworkOptions(
            network=network,
            method=method,
            training={"rounds": rounds, "seed": seed, "local": local},
            settings=_object(settings),
            held_out=held_out,
            policy=None if policy is None else load(policy),
            canary=_object(canary),
        )
        if deal is None:
            prepared = prepare_rows(data, ref=ref, options=options)
        else:
            images = load_image_npz(data)
            owners = deal_out(images, *deal, seed)
            prepared = prepare_network(images, owners, ref=ref, options=options)
    with connect(url) as operator:
        operator.register_model(prepared.manifest, prepared.npz)
        click.echo(f"registered {len(prepared.records)} records, training …")
        wait_until_ready(operator, ref, TRAIN_SECONDS)


def _object(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise click.ClickException(f"{file}: not JSON") from None
    if not isinstance(read, dict):
        raise click.ClickException(f"{file}: must be one JSON object")
    return read
