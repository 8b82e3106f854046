"""`lethe model register network`: a deep model with its rows, its training and its policy."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lethe.cli.options import FILE, plain, service_url
from workers.cli import service
from workers.cli.data_options import reading
from workers.cli.models.fitting import check_manifest
from workers.cli.models.training import read_object, shape_of, training_of
from workers.cli.network_data import data_options, source_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRAIN_SECONDS = 24 * 3600
NETWORKS = ("logistic", "mit-b0", "mlp", "res-unet", "resnet18", "simple-cnn", "vit-lite")


@click.command("network")
@service_url
@click.option("--ref", required=True, help="The model's reference, such as x-rays.")
@data_options
@click.option("--network", type=click.Choice(NETWORKS), default="simple-cnn", show_default=True)
@click.option(
    "--shape",
    multiple=True,
    callback=shape_of,
    metavar="NAME=VALUE",
    help="Further settings of the architecture: hidden of mlp, layers of vit-lite …",
)
@click.option("--method", default="retrain", show_default=True, help="The default method.")
@click.option(
    "--training",
    type=FILE,
    help="JSON file: the manifest's training, including the options below.",
)
@click.option("--rounds", type=click.IntRange(min=1), default=10, show_default=True)
@click.option(
    "--epochs", type=float, default=1.0, show_default=True, help="Local epochs per round."
)
@click.option("--batch-size", type=click.IntRange(min=1), default=32, show_default=True)
@click.option("--learning-rate", type=float, default=0.1, show_default=True)
@click.option("--momentum", type=float, default=0.0, show_default=True)
@click.option("--weight-decay", type=float, default=0.0, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--held-out",
    type=float,
    default=0.2,
    show_default=True,
    help="Share of records never trained on.",
)
@click.option(
    "--send-holdout",
    is_flag=True,
    help="Send DATA's held-out rows too: every version is evaluated on them.",
)
@click.option(
    "--policy",
    type=FILE,
    help="Policy file (see `lethe policy`). Default: one for the largest client.",
)
@click.option("--settings", type=FILE, help="JSON: settings of methods by name.")
@click.option("--canary", type=FILE, help="JSON: a trigger and its target class.")
@click.pass_context
@service.decision_options
def network(
    context: click.Context,
    /,
    url: str,
    ref: str,
    network: str,
    shape: dict[str, int],
    method: str,
    training: Path | None,
    held_out: float,
    send_holdout: bool,
    policy: Path | None,
    settings: Path | None,
    canary: Path | None,
    **rest: Any,
) -> None:
    """Register a network.

    It is trained on the rows in DATA. Training and policy are final; their digest is logged.
    """
    from workers.cli.errors import shown
    from workers.cli.policy_file import load
    from workers.registration.network import NetworkOptions
    from workers.registration.network_source import prepare

    trained = training_of(context, training, network, rest)
    with shown():
        options = NetworkOptions(
            network=network,
            shape=shape,
            method=method,
            training=trained,
            settings=read_object(settings),
            held_out=held_out,
            send_held_out=send_holdout,
            policy=None if policy is None else load(policy),
            canary=read_object(canary),
        )
        with reading(f"reading {rest['data'].name}") as progress:
            source = source_of(rest, trained["seed"], progress)
            prepared = prepare(source, ref=ref, options=options)
    check_manifest(prepared.manifest)
    for line in prepared.lines:
        click.echo(plain(line))
    with service.connect(url) as operator:
        operator.register_model(service.decided(prepared.manifest), prepared.npz)
        click.echo(f"registered {prepared.summary()}; training …")
        version = service.wait_until_ready(operator, ref, TRAIN_SECONDS)["current_version"]
        if prepared.inputs is not None and prepared.labels is not None and len(prepared.inputs):
            file = operator.artifact(ref, int(version))
            click.echo(_accuracy(file, prepared.inputs, prepared.labels))


def _accuracy(file: bytes, inputs: "NDArray[Any]", labels: "NDArray[Any]") -> str:
    """Return a version's accuracy on held-out rows as text, or why it is not measured here."""
    from workers.errors import RefusedError
    from workers.registration.network import predicted

    try:
        found = predicted(file, inputs)
    except RefusedError as error:
        return f"accuracy is not measured here: {error}"
    kind = "accuracy" if labels.ndim == 1 else "accuracy of pixels"
    return f"{kind} on {len(labels):,} held-out rows: {float((found == labels).mean()):.3f}"
