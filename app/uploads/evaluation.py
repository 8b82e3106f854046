"""Held-out rows that a registration sends, checked and packed beside the rows to learn."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from app.problems import BodyTooLargeError, UploadError
from app.uploads.npz import Archive, Headers, check_ids, read_ids
from app.uploads.owned import HELD_OUT_RECORDS, Packed
from lethe.identity import HELD_OUT

FEATURES, LABELS = HELD_OUT + "features", HELD_OUT + "labels"
CLIENTS, SUBJECTS = HELD_OUT + "clients", HELD_OUT + "subjects"
ARRAYS = (FEATURES, LABELS, CLIENTS, SUBJECTS)
FLOATS = (np.float16, np.float32, np.float64)


def check_evaluation(headers: Headers, *, columns: int, numbers: bool, max_bytes: int) -> None:
    """Check held-out rows by their headers: (m, columns) features, and for each row the rest.

    numbers: labels may be floating-point numbers. Without any of ARRAYS nothing is sent.

    Raises:
        UploadError: An array is missing, or has a wrong shape or type.
        BodyTooLargeError: The features, or the ids, would take more than `max_bytes`.
    """
    if not any(name in headers for name in ARRAYS):
        return
    missing = [name for name in (*ARRAYS, HELD_OUT_RECORDS) if name not in headers]
    if missing:
        raise UploadError(f"the .npz has held-out rows and lacks: {', '.join(missing)}")
    features, labels = headers[FEATURES], headers[LABELS]
    if features.ndim != 2 or features.shape[1] != columns or features.dtype not in FLOATS:
        raise UploadError(f"{FEATURES} must be a floating-point matrix of {columns} columns")
    rows = features.shape[0]
    if headers[HELD_OUT_RECORDS].shape != (rows,):
        raise UploadError(f"{HELD_OUT_RECORDS} must be one id for each row of {FEATURES}")
    if features.size * 8 > max_bytes:
        raise BodyTooLargeError(f"{FEATURES} take more than {max_bytes} bytes")
    if labels.shape != (rows,) or not (
        labels.dtype.kind in "iu" or (numbers and labels.dtype in FLOATS)
    ):
        kind = "number" if numbers else "integer"
        raise UploadError(f"{LABELS} must be one {kind} for each row")
    check_ids(headers, (CLIENTS, SUBJECTS), rows, max_bytes)


def add_evaluation(packed: Packed, sent: Archive, *, classes: int, missing: bool) -> None:
    """Add the held-out rows, if there are any: float64 features, labels as of learned rows.

    missing: whether NaN is a value of a feature. Raises UploadError for an infinity, a NaN
    where there is none, or an unknown label.
    """
    if FEATURES not in sent.headers:
        return
    packed.add(FEATURES, np.float64, sent.headers[FEATURES], _features(sent, missing))
    kind = np.int64 if classes else np.float64
    packed.add(LABELS, kind, sent.headers[LABELS], _labels(sent, classes))
    for name in (CLIENTS, SUBJECTS):
        packed.add_ids(name, read_ids(sent, name))


def _features(sent: Archive, missing: bool) -> Iterator[NDArray[np.generic]]:
    for block in sent.blocks(FEATURES):
        if np.isinf(block).any() or (not missing and np.isnan(block).any()):
            raise UploadError(f"{FEATURES} hold a NaN or an infinity: clean the rows")
        yield block


def _labels(sent: Archive, classes: int) -> Iterator[NDArray[np.generic]]:
    for block in sent.blocks(LABELS):
        if classes and (int(block.min()) < 0 or int(block.max()) >= classes):
            raise UploadError(f"{LABELS} must lie between 0 and {classes - 1}")
        if not np.isfinite(block).all():
            raise UploadError(f"{LABELS} hold a NaN or an infinity: leave out such rows")
        yield block
