"""Images by name: digits always, others from the files that were given."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from benchmarks.data.idx import load_idx
from workers.data.digits import load_digit_images
from workers.data.image_npz import load_image_npz
from workers.data.images import LabelledImages
from workers.errors import DatasetError

IDX = (
    ("train-images", "train-labels"),
    ("t10k-images", "t10k-labels"),
)  # the standard names, "-idx3-ubyte" and ".gz" may follow
HALVED = "-halved"
ENLARGED = 2  # Res-UNet needs sides of 16


class MissingDataError(DatasetError):
    """A setting's images were not given."""


def load(name: str, given: Sequence[Path]) -> LabelledImages:
    """Return the images of a name: digits, or the first path whose stem begins with it.

    "-halved" behind a name: its images at half their width and height.
    A path is an .npz, a folder of them, or a folder with MNIST's four IDX files.
    Raises MissingDataError, and DatasetError for a file that cannot be read.
    """
    if name == "digits":
        return load_digit_images()
    if name == "digit-masks":
        return enlarged(load_digit_images())
    if name.endswith(HALVED):
        return halved(load(name.removesuffix(HALVED), given))
    for path in given:
        if path.is_dir():
            archives = sorted(path.glob(f"{name}*.npz"))
            if archives:
                return load_image_npz(archives[0])
            if name == "mnist" and any(path.glob(f"{IDX[0][0]}*")):
                return load_idx(*(_find(path, start) for pair in IDX for start in pair))
        elif path.stem.startswith(name):
            return load_image_npz(path)
    raise MissingDataError(f"{name}: give the file, --data {name}.npz")


def load_or_skip(
    name: str, images: str, given: Sequence[Path], *, asked: bool
) -> LabelledImages | None:
    """Return a setting's images, None with a word on it where they were not given.

    asked: the setting was named on the command line. Raises ClickException then.
    """
    try:
        return load(images, given)
    except MissingDataError as error:
        if asked:
            raise click.ClickException(str(error)) from None
        click.echo(f"{name} is left out: {error}", err=True)
        return None


def enlarged(images: LabelledImages) -> LabelledImages:
    """Return each pixel as 2 x 2 of them."""
    pixels = np.repeat(np.repeat(images.images, ENLARGED, axis=1), ENLARGED, axis=2)
    return replace(images, images=pixels)


def halved(images: LabelledImages) -> LabelledImages:
    """Return the mean of each 2 x 2 pixels, rounded; sides are even."""
    n, height, width, channels = images.images.shape
    pixels = images.images.reshape(n, height // 2, 2, width // 2, 2, channels)
    return replace(images, images=np.rint(pixels.mean(axis=(2, 4))).astype(np.uint8))


def _find(folder: Path, start: str) -> Path:
    found = sorted(folder.glob(f"{start}*"))
    if not found:
        raise MissingDataError(f"the folder has no file {start}-idx…-ubyte")
    return found[0]
