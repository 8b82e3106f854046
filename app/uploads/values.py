"""Checks the values of uploaded arrays, block by block as they are read.

Errors name an array or a column, never a value.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.problems import UploadError
from app.uploads.npz import LABEL_NAMES, Archive, Header

BINS = "bins"  # an array: which rows determine the bins of a forest
EXACT = 1 << 53  # floats hold every integer up to here
WIDEST = 1 << 14  # bytes of a name of a label; a class has at most 200 characters
LARGEST = 1e6  # beyond it float32 gradients overflow, and nothing is learned from the rows


@dataclass(frozen=True, slots=True)
class Within:
    """The range of a table's numbers that are summed as integers; others are refused.

    low, high: of features. target: the largest of numbers to predict. weighted: whether there
    is an array `weights`, in sixteenths up to 256; if not, there may be none.
    """

    low: float
    high: float
    target: float
    weighted: bool


def finite(sent: Archive) -> Iterator[NDArray[np.generic]]:
    """Yield the features. Raises UploadError for a NaN or an infinity."""
    for block in sent.blocks("features"):
        if not np.isfinite(block).all():
            raise UploadError("features hold a NaN or an infinity: clean the rows")
        yield block


def classes_below(sent: Archive, classes: int) -> Iterator[NDArray[np.generic]]:
    """Yield the labels. Raises UploadError for one that is no class."""
    for block in sent.blocks("labels"):
        if int(block.min()) < 0 or int(block.max()) >= classes:
            raise UploadError(f"labels must lie between 0 and {classes - 1}")
        yield block


def check_label_names(sent: Archive, names: Sequence[str]) -> None:
    """Check that names of labels, if sent, are those of the model's classes, in their order.

    Labels are numbers of the classes: under other names, other labels would be learned. Raises
    UploadError.
    """
    if LABEL_NAMES not in sent.headers:
        return
    header = sent.headers[LABEL_NAMES]
    same = header.shape == (len(names),) and header.dtype.kind == "U"
    if (
        not same
        or header.dtype.itemsize > WIDEST
        or not np.array_equal(sent.array(LABEL_NAMES), np.array(names, np.str_))
    ):
        raise UploadError(
            f"{LABEL_NAMES} are not the model's classes in their order, by which labels are "
            "numbered: number them so and leave the array out, or send the rows of a model "
            "with classes by lethe client contribute, which matches names"
        )


def bounded_inputs(sent: Archive) -> Iterator[NDArray[np.generic]]:
    """Yield the inputs. Raises UploadError for floats beyond LARGEST, or NaN."""
    for block in sent.blocks("inputs"):
        # False for NaN too.
        if block.dtype != np.uint8 and not (np.abs(block) <= LARGEST).all():
            raise UploadError(
                f"inputs hold a NaN, an infinity or more than {LARGEST:g}: clean or scale them"
            )
        yield block


def without_infinity(sent: Archive, name: str) -> Iterator[NDArray[np.generic]]:
    """Yield an array, in which NaN is a missing value. Raises UploadError for an infinity."""
    for block in sent.blocks(name):
        if np.isinf(block).any():
            raise UploadError(f"{name} hold an infinite value: correct or remove these rows")
        yield block


def check_whole(block: NDArray[np.generic], name: str) -> None:
    """Raise UploadError for an integer that float64, as which it is packed, cannot hold."""
    if block.dtype.kind in "iu" and (int(block.max()) > EXACT or int(block.min()) < -EXACT):
        raise UploadError(
            f"{name} hold an integer beyond 2**53, which a float cannot hold exactly: send "
            "smaller numbers"
        )


def targets(sent: Archive, within: Within | None) -> Iterator[NDArray[np.generic]]:
    """Yield numbers to predict. Raises UploadError for one that is missing or not `within`."""
    for block in without_infinity(sent, "labels"):
        check_whole(block, "labels")
        if np.isnan(block).any():
            raise UploadError("labels hold a NaN: leave out rows without a label")
        if within is not None and (np.abs(block) > within.target).any():
            raise UploadError(
                f"labels: one is beyond {within.target:g}: rescale them by a factor that no "
                "row decided, or register a larger target_exponent"
            )
        yield block


def bounded_features(
    blocks: Iterator[NDArray[np.generic]], header: Header, within: Within
) -> Iterator[NDArray[np.generic]]:
    """Yield features. Raises UploadError for one that is not `within`."""
    start = 0
    for block in blocks:
        values = block.astype(np.float64, copy=False)
        outside = (values < within.low) | (values > within.high)
        if outside.any():
            place = start + int(outside.argmax())
            column = place // header.shape[0] if header.fortran else place % header.shape[1]
            if within.low == 0 and values[outside.argmax()] < 0:
                raise UploadError(
                    f"features: column {column}, counted from 0, is negative in a row: counts "
                    "are at least 0"
                )
            raise UploadError(
                f"features: column {column}, counted from 0, is beyond {within.high:g} in a "
                "row: rescale it by a factor that no row decided, or register a larger exponent"
            )
        start += len(block)
        yield block


def sixteenths(sent: Archive) -> Iterator[NDArray[np.generic]]:
    """Yield weights that are summed as integers. Raises UploadError for others."""
    for block in sent.blocks("weights"):
        steps = block.astype(np.float64) * 16
        if not ((steps >= 0) & (steps <= 4096) & (steps == np.rint(steps))).all():
            raise UploadError("weights must be multiples of 1/16 from 0 to 256")
        yield block


def unmarked(sent: Archive, rows: int) -> NDArray[np.bool_]:
    """Return which rows the trees of a forest learn, (n,): those that determine no bins.

    Raises UploadError unless some rows determine the bins and some are left to learn.
    """
    learned = np.ones(rows, bool)
    if BINS in sent.headers:
        learned = ~sent.array(BINS).astype(bool)
    if learned.all():
        raise UploadError(
            f"the bins come from held-out rows and no row is one: mark some in an array {BINS}"
            ", or register declared edges"
        )
    if not learned.any():
        raise UploadError(f"{BINS} mark all rows: leave some for the trees to learn")
    return learned


def shares(sent: Archive) -> Iterator[NDArray[np.generic]]:
    """Yield weights. Raises UploadError for one that is negative or not finite."""
    for block in sent.blocks("weights"):
        shares = block.astype(np.float64, copy=False)
        if not (np.isfinite(shares) & (shares >= 0)).all():
            raise UploadError("weights must be finite numbers of at least 0")
        yield block


def categorised(
    blocks: Iterator[NDArray[np.generic]], header: Header, categories: Mapping[int, int]
) -> Iterator[NDArray[np.generic]]:
    """Yield features. Raises UploadError for a number that is no category of its column."""
    rows, width = header.shape
    counts = np.full(width, np.inf)
    counts[list(categories)] = list(categories.values())
    start = 0
    for block in blocks:
        places = np.arange(start, start + len(block))
        columns = places // rows if header.fortran else places % width
        most = counts[columns]
        values = block.astype(np.float64, copy=False)
        declared = np.isfinite(most) & ~np.isnan(values)
        wrong = declared & ((values < 0) | (values >= most) | (values != np.rint(values)))
        if wrong.any():
            column = int(columns[wrong.argmax()])
            raise UploadError(
                f"features: column {column}, counted from 0, has numbers of categories from 0 "
                f"to {categories[column] - 1}: encode its values as the manifest names them"
            )
        start += len(block)
        yield block
