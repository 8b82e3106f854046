"""`lethe demo-federated`: a deep model forgets a client, by each method, beside retraining."""

from pathlib import Path

import click


@click.command("demo-federated")
@click.option(
    "--data",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An .npz of images with a test set; default: scikit-learn's digits.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=30, show_default=True)
def demo_federated(data: Path | None, seed: int, rounds: int) -> None:
    """Train a small CNN over ten clients, forget one of them, and compare with retraining."""
    from workers.cli.errors import shown
    from workers.demo.federated import run

    with shown():
        run(data, seed, rounds)
