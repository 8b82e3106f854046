"""Rows in, checked before anything is stored.

What it lets through is safe to compute with: finite, of consistent shapes, within the
exactness bound, of distinct record ids.
"""

import numpy as np

from app.api.npz import check_exactness, unpack
from app.api.owned import pack_owned
from app.service.problems import UploadError
from app.service.upload import CheckedUpload

ARRAYS = ("features", "labels", "clients", "records", "subjects")
REQUIRED = ("features", "labels", "clients")


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
        BodyTooLargeError: It would unpack to more than `max_bytes`.
    """
    arrays = unpack(data, max_bytes, ARRAYS, REQUIRED)
    features, labels = arrays["features"], arrays["labels"]
    if features.ndim != 2 or features.dtype not in (np.float16, np.float32, np.float64):
        raise UploadError("features must be a float16, float32 or float64 matrix")
    rows = features.shape[0]
    if features.shape[1] != dimension:
        raise UploadError(f"features have {features.shape[1]} columns, the model {dimension}")
    if rows == 0:
        raise UploadError("the upload has no rows")
    check_exactness(rows, bits)
    for start in range(0, rows, 4096):  # in blocks: isfinite allocates a mask of its input
        if not np.isfinite(features[start : start + 4096]).all():
            raise UploadError("features hold a NaN or an infinity: clean the rows")
    if labels.shape != (rows,) or labels.dtype.kind not in "iu":
        raise UploadError("labels must be one integer for each row")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise UploadError(f"labels must lie between 0 and {classes - 1}")
    kept = {"features": features, "labels": labels.astype(np.int64)}
    return pack_owned(arrays, kept, rows, records_required=records_required)
