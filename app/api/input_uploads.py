"""Rows of a deep model in, checked before anything is stored."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.api.npz import unpack
from app.api.owned import pack_owned
from app.service.problems import UploadError
from app.service.upload import CheckedUpload

ARRAYS = ("inputs", "labels", "clients", "records", "subjects")
REQUIRED = ("inputs", "labels", "clients")

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
    -1…1. labels are (n,), or masks (n, height, width) where `pixels`. The ids are as in
    `app.api.uploads`.

    Raises:
        UploadError: The file is no .npz, an array is missing, has a wrong shape or type, holds
            a NaN, infinity or an unknown label, or ids repeat.
        BodyTooLargeError: It would unpack to more than `max_bytes`.
    """
    arrays = unpack(data, max_bytes, ARRAYS, REQUIRED)
    inputs, labels = arrays["inputs"], arrays["labels"]
    rows = len(inputs) if inputs.ndim else 0
    if rows == 0:
        raise UploadError("the upload has no rows")
    if tuple(inputs.shape[1:]) != tuple(shape):
        raise UploadError(f"inputs must be (n, {', '.join(map(str, shape))}) as registered")
    _check_inputs(inputs, images=len(shape) == 3)
    wanted = (rows, *(shape[1:] if pixels else ()))
    if labels.shape != wanted or labels.dtype.kind not in "iu":
        raise UploadError(
            "labels must be one integer for each " + ("pixel" if pixels else "row")
        )
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise UploadError(f"labels must lie between 0 and {classes - 1}")
    kept = {"inputs": inputs, "labels": labels.astype(np.int64)}
    return pack_owned(arrays, kept, rows, records_required=records_required)


def _check_inputs(inputs: NDArray[np.generic], *, images: bool) -> None:
    if inputs.dtype == np.uint8 and images:
        return
    if inputs.dtype != np.float32:
        raise UploadError("inputs must be float32" + (", or uint8 pixels" if images else ""))
    for start in range(0, len(inputs), 4096):  # in blocks: each comparison allocates a mask
        part = np.abs(inputs[start : start + 4096])
        if not (part <= LARGEST).all():  # NaN is not at most anything
            raise UploadError(
                f"inputs hold a NaN, an infinity or more than {LARGEST:g}: clean or scale them"
            )
