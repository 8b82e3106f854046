"""From a published data set to an .npz that `lethe` reads."""

from pathlib import Path
from typing import Literal

import click
import numpy as np

from benchmarks.data.convert import image_arrays, text_arrays
from benchmarks.data.formats import FORMATS, Format, load_images
from benchmarks.data.sentiment140 import load_sentiment140
from workers.data.owners import Ownership
from workers.errors import DatasetError

Name = Format | Literal["sentiment140"]


@click.command()
@click.argument("form", metavar="FORMAT", type=click.Choice([*FORMATS, "sentiment140"]))
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.argument("out", metavar="OUT.npz", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--coarse", is_flag=True, help="CIFAR-100's 20 superclasses.")
@click.option(
    "--at-least",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="ROWS",
    help="sentiment140: leave out users with fewer tweets.",
)
@click.option(
    "--draw",
    type=click.IntRange(min=1),
    metavar="CLIENTS",
    help="sentiment140: draw so many of the users, by --seed. Default: all.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
def main(
    form: Name, path: Path, out: Path, coarse: bool, at_least: int, draw: int | None, seed: int
) -> None:
    """Write the data set at PATH as OUT.npz, with its clients where it names any.

    idx: MNIST's files, a folder or the one with the training images. cifar: a folder
    cifar-10-batches-py or cifar-100-python, of which no pickle is run. leaf: FEMNIST as a
    .json, a folder of them, or one with train and test. sentiment140: the .csv, whose users
    become the clients.

    `lethe model register network OUT.npz` reads images, and `lethe features extract`
    reads texts.
    """
    chosen = Ownership(at_least=at_least, draw=draw, seed=seed)
    try:
        if form == "sentiment140":
            if coarse:
                raise DatasetError("coarse labels are CIFAR-100's: leave --coarse out")
            arrays = text_arrays(load_sentiment140(path), chosen)
        else:
            if chosen != Ownership(seed=seed):
                raise DatasetError(
                    "of images `lethe model register network` chooses the clients: give "
                    "--at-least and --draw to it"
                )
            arrays = image_arrays(load_images(path, form, coarse=coarse))
    except DatasetError as error:
        raise click.ClickException(str(error)) from None
    with out.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    rows = {name: len(array) for name, array in arrays.items() if name.endswith("labels")}
    click.echo(f"{sum(rows.values())} rows in {out}")


if __name__ == "__main__":
    main()
