"""Segmentation data as PNG files: images/SITE/NAME.png beside masks/SITE/NAME.png.

SITE is the client, as in ProstateMRI's six hospitals; a mask's grey values are classes.
Needs Pillow, the extra `vision`.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers import libraries
from workers.data.images import SegmentedImages
from workers.errors import DatasetError

_DEPTH = 24  # the byte of the bits of a sample (PNG, third edition, 11.2.1)
LARGEST_SIDE = 1 << 13  # pixels; a few bytes of PNG can declare far more


def load_masks(
    folder: Path, classes: int, *, values: tuple[int, ...] | None = None
) -> SegmentedImages:
    """Return all images of a folder with their masks, sorted by site and name.

    Without `values` a pixel's grey value is its class; with it, values[k] is class k, such
    as (0, 255) for black and white masks. All images have one size and one number of
    channels (grey 1, colour 3). Raises DatasetError for anything else, and without Pillow.
    """
    if find_spec("PIL") is None:
        raise DatasetError(f"reading PNG needs Pillow: {libraries.with_extra('vision')}")
    if values is not None and (len(values) != classes or len(set(values)) != classes):
        raise DatasetError(
            f"--mask-value: name one grey value for each of the {classes} classes, each once"
        )
    root = folder / "images"
    files, masks = _files(root), set(_files(folder / "masks"))
    if not files or set(files) != masks:
        raise DatasetError(
            "each images/SITE/NAME.png needs a masks/SITE/NAME.png of the same "
            "name, and the other way round; there must be at least one"
        )
    pixels = [_read(root / path, palette=False) for path in files]
    planes = [_read(folder / "masks" / path, palette=True) for path in files]
    if len({image.shape for image in pixels}) > 1:
        raise DatasetError(
            "images: must all have the same width, height and number of channels"
        )
    if any(mask.shape != (*pixels[0].shape[:2], 1) for mask in planes):
        raise DatasetError(
            "masks: must be grey PNG files of the width and height of their images"
        )
    return SegmentedImages(
        images=np.stack(pixels),
        masks=_classes(np.stack(planes)[..., 0], classes, values),
        clients=np.array([path.parts[0] for path in files]),
        names=np.array([path.as_posix() for path in files]),
        classes=classes,
    )


def _files(folder: Path) -> list[Path]:
    """Return the files SITE/NAME.png of a folder, sorted. Raises DatasetError for others.

    A file that is not read is a row that nobody learns. Hidden files are those of a desktop.
    """
    found: list[Path] = []
    for site in _shown(folder):
        found += _shown(site) if site.is_dir() else [site]
    other = sum(
        path.parent == folder or path.suffix != ".png" or path.is_dir() for path in found
    )
    if other:
        raise DatasetError(
            f"{folder.name}: {other:,} entries are not SITE/NAME.png, and would not be "
            "learned: rename or convert them, or move them elsewhere"
        )
    return sorted(path.relative_to(folder) for path in found)


def _shown(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError:
        raise DatasetError("a folder cannot be read: check its permissions") from None


def _read(path: Path, *, palette: bool) -> NDArray[np.uint8]:
    """Return (h, w, 1) of a grey or palette image, (h, w, 3) of a coloured one.

    palette: its indices are the pixels; else an image with one is refused.
    """
    from PIL import Image

    try:
        # Other libraries configure Pillow to fill in truncated files, so verify first.
        with path.open("rb") as file, Image.open(file, formats=["PNG"]) as image:
            image.verify()
        with path.open("rb") as file:
            deep = file.read(_DEPTH + 1)[_DEPTH] > 8
        with path.open("rb") as file, Image.open(file, formats=["PNG"]) as image:
            if max(image.size) > LARGEST_SIDE:
                raise DatasetError(
                    "an image is wider or higher than 8,192 pixels: scale it down or cut it"
                )
            # Each image has its own palette, in which an index has no meaning of its own.
            if image.mode == "P" and not palette:
                raise DatasetError(
                    "images: one has a palette: convert all to grey or to colours"
                )
            # A palette's indices are the classes of a mask, not its colours.
            grey: dict[str, Any] = {"L": "L", "P": "P", "1": "L", "LA": "L"}
            mode = image.mode
            # Pillow halves the 16 bits of colours, and of grey with transparency, unasked.
            if deep or mode not in ("RGB", "RGBA", *grey):
                raise DatasetError(
                    "an image has more than 8 bits for each channel: convert it to 8"
                )
            wanted = grey.get(mode, "RGB")
            array = np.array(image if mode == wanted else image.convert(wanted))
    # IndexError: of a file without image data, from Pillow's `verify`.
    except (OSError, SyntaxError, ValueError, IndexError, Image.DecompressionBombError):
        raise DatasetError("a PNG file is damaged or missing: save it again") from None
    return array.astype(np.uint8).reshape(*array.shape[:2], -1)


def _classes(
    grey: NDArray[np.uint8], classes: int, values: tuple[int, ...] | None
) -> NDArray[np.int64]:
    if values is None:
        return grey.astype(np.int64)
    found = np.full(grey.shape, -1, dtype=np.int64)
    for label, value in enumerate(values):
        found[grey == value] = label
    return found
