"""Rows in, checked before anything is stored.

What it lets through is safe to compute with: finite, of consistent shapes, within the
exactness bound, of distinct record ids.
"""

import numpy as np

from app.api.npz import Headers, blocks, check_exactness, check_ids, unpack
from app.api.owned import OWNERS, pack_owned
from app.service.problems import UploadError
from app.service.upload import CheckedUpload

ARRAYS = ("features", "labels", *OWNERS)
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

    arrays = unpack(data, max_bytes, ARRAYS, REQUIRED, fit)
    features, labels = arrays["features"], arrays["labels"]
    if not all(np.isfinite(block).all() for block in blocks(features)):
        raise UploadError("features hold a NaN or an infinity: clean the rows")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise UploadError(f"labels must lie between 0 and {classes - 1}")
    kept = {"features": features, "labels": labels.astype(np.int64)}
    return pack_owned(arrays, kept, len(features), records_required=records_required)
