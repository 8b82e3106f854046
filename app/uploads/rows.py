"""Rows in, checked before anything is stored.

What it lets through is safe to compute with: finite, of consistent shapes, within the
exactness bound, of distinct record ids.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.problems import BodyTooLargeError, UploadError
from app.uploads.checked import CheckedUpload
from app.uploads.npz import Headers, blocks, check_exactness, check_ids, unpack
from app.uploads.owned import OWNERS, pack_owned

COMMON, REQUIRED = ("labels", *OWNERS), ("labels", "clients")


def parse_upload(
    data: bytes,
    *,
    dimension: int,
    classes: int,
    bits: int,
    max_bytes: int,
    records_required: bool = False,
) -> CheckedUpload:
    """Check an uploaded .npz against a model's configuration.

    `subjects` defaults to the clients and, unless `records_required`, `records` to the row
    numbers, which are distinct within one upload only.

    Raises:
        UploadError: The file is no .npz, an array is missing, has a wrong shape or type, holds
            a NaN, infinity or an unknown label, ids repeat, or there are too many rows for
            exact arithmetic.
        BodyTooLargeError: It, or its ids, would unpack to more than `max_bytes`.
    """

    def fit(headers: Headers) -> None:
        features, labels = headers["features"], headers["labels"]
        if features.ndim != 2 or features.dtype not in (np.float16, np.float32, np.float64):
            raise UploadError("features must be a float16, float32 or float64 matrix")
        rows = features.shape[0]
        if features.shape[1] != dimension:
            raise UploadError(
                f"features have {features.shape[1]} columns, the model {dimension}"
            )
        if rows == 0:
            raise UploadError("the upload has no rows")
        check_exactness(rows, bits)
        if labels.shape != (rows,) or labels.dtype.kind not in "iu":
            raise UploadError("labels must be one integer for each row")
        check_ids(headers, OWNERS, rows, max_bytes)

    arrays = unpack(data, max_bytes, ("features", *COMMON), ("features", *REQUIRED), fit)
    features, labels = arrays["features"], arrays["labels"]
    if not all(np.isfinite(block).all() for block in blocks(features)):
        raise UploadError("features hold a NaN or an infinity: clean the rows")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise UploadError(f"labels must lie between 0 and {classes - 1}")
    kept = {"features": features, "labels": labels.astype(np.int64)}
    return pack_owned(arrays, kept, len(features), records_required=records_required)


LARGEST = 1e6  # beyond it float32 gradients overflow, and the client's rows teach nothing


def parse_inputs(
    data: bytes,
    *,
    shape: Sequence[int],
    classes: int,
    pixels: bool,
    max_bytes: int,
    records_required: bool = False,
) -> CheckedUpload:
    """Check an uploaded .npz against a network's configuration.

    inputs are (n, *shape): float32, or uint8 pixels of planes, which the worker scales to
    -1…1. labels are (n,), or masks (n, height, width) where `pixels`. The ids are as for
    `parse_upload`.

    Raises:
        UploadError: The file is no .npz, an array is missing, has a wrong shape or type, holds
            a NaN, infinity or an unknown label, or ids repeat.
        BodyTooLargeError: It, or its ids, would unpack to more than `max_bytes`.
    """

    def fit(headers: Headers) -> None:
        inputs, labels = headers["inputs"], headers["labels"]
        rows = inputs.shape[0] if inputs.ndim else 0
        if rows == 0:
            raise UploadError("the upload has no rows")
        if inputs.shape[1:] != tuple(shape):
            raise UploadError(f"inputs must be (n, {', '.join(map(str, shape))}) as registered")
        images = len(shape) == 3
        if inputs.dtype != np.float32 and not (images and inputs.dtype == np.uint8):
            raise UploadError("inputs must be float32" + (", or uint8 pixels" * images))
        if labels.shape != (rows, *(shape[1:] if pixels else ())) or (
            labels.dtype.kind not in "iu"
        ):
            raise UploadError(
                "labels must be one integer for each " + ("pixel" if pixels else "row")
            )
        if labels.size * 8 > max_bytes:  # as they are kept
            raise BodyTooLargeError(f"the labels take more than {max_bytes} bytes")
        check_ids(headers, OWNERS, rows, max_bytes)

    arrays = unpack(data, max_bytes, ("inputs", *COMMON), ("inputs", *REQUIRED), fit)
    inputs, labels = arrays["inputs"], arrays["labels"]
    if inputs.dtype != np.uint8:
        _check_values(inputs)
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise UploadError(f"labels must lie between 0 and {classes - 1}")
    kept = {"inputs": inputs, "labels": labels.astype(np.int64)}
    return pack_owned(arrays, kept, len(inputs), records_required=records_required)


def _check_values(inputs: NDArray[np.generic]) -> None:
    for block in blocks(inputs):
        if not (np.abs(block) <= LARGEST).all():  # NaN is not at most anything
            raise UploadError(
                f"inputs hold a NaN, an infinity or more than {LARGEST:g}: clean or scale them"
            )
