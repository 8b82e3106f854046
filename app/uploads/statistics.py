"""Uploaded statistics, from clients that keep their rows.

The shape is checked here, before anything is stored; whether any rows can have such statistics
is checked by the worker, which has the linear algebra.
"""

from math import inf

import numpy as np
from numpy.typing import NDArray

from app.problems import UploadError
from app.uploads.checked import CheckedUpload
from app.uploads.npz import Archive, Header, Headers, check_exactness, check_ids, ids, opened
from app.uploads.owned import Packed, add_identities, check_people
from app.uploads.spool import Spool
from app.vault.artifacts import StagedArtifact

FORMS = ("gram", "factor", "sketch")
SKETCH_FIELDS = ("shift", "residual")
ARRAYS = ("records", "counts", "moment", "client", "subject", *FORMS, *SKETCH_FIELDS)
REQUIRED = ("records", "counts", "moment", "client")
_Arrays = dict[str, NDArray[np.generic]]


def parse_message(
    body: Spool,
    file: StagedArtifact,
    *,
    dimension: int,
    classes: int,
    bits: int,
    max_bytes: int,
    sketches: bool = True,
) -> CheckedUpload:
    """Check integer statistics over n rows of one client and subject; pack them into `file`.

    Arrays: records (n,) ids; counts (classes,) int64 rows of each label; moment (dimension,
    classes) int64; client and, by default the same, subject: one id each; and the Gram
    matrix in one of three forms:

    - gram (dimension·(dimension+1)/2,) int64: its upper triangle by rows;
    - factor (k, dimension) float64, k <= min(n, dimension): R with RᵀR the Gram matrix;
    - sketch (r, dimension) int64, shift int64 and residual float64: see docs/methods.md;
      only if `sketches`.

    Raises UploadError: the file is no .npz, an array is missing, has a wrong shape or type or
    holds values that no rows can have, ids repeat, or there are too many rows;
    BodyTooLargeError: it would unpack to more than `max_bytes`.
    """

    def fit(headers: Headers) -> None:
        records = headers["records"]
        if records.ndim != 1 or not records.size:
            raise UploadError("records must be a list of one id for each row, not empty")
        check_exactness(records.size, bits)
        check_ids(headers, ("records",), records.size, max_bytes)
        check_people(headers, records.size, max_bytes)
        for owner in ("client", "subject"):
            if owner in headers and headers[owner].size != 1:
                raise UploadError(f"{owner} must be one id")
        _fit_sums(headers, dimension, classes)
        _fit_form(headers, records.size, dimension, sketches)

    with opened(body, max_bytes, ARRAYS, REQUIRED, fit) as sent:
        arrays = {name: sent.array(name) for name in sent.headers if name in ARRAYS}
        rows = int(arrays["records"].size)
        names = ids(arrays["records"], "records", rows)
        if len(set(names)) != rows:
            raise UploadError("record ids repeat: give each record its own id")
        return _packed(file, sent, arrays, names)


def _packed(
    file: StagedArtifact, sent: Archive, arrays: _Arrays, names: list[str]
) -> CheckedUpload:
    rows = len(names)
    client = ids(arrays["client"].reshape(-1), "client", 1)
    subject = (
        ids(arrays["subject"].reshape(-1), "subject", 1) if "subject" in arrays else client
    )
    counts = arrays["counts"]
    if int(counts.min()) < 0 or sum(counts.tolist()) != rows:
        raise UploadError("counts must not be negative and must add up to the records")
    kept = {"counts": counts, "moment": arrays["moment"], **_check_form(arrays)}
    with Packed(file) as packed:
        packed.add_ids("records", names)
        held_out = add_identities(packed, sent, set(names))
        for name, array in {
            "client": np.array(client[0]),
            "subject": np.array(subject[0]),
            **kept,
        }.items():
            like = Header(array.shape, array.dtype, False, 0)
            packed.add(name, array.dtype, like, [array.ravel()])
    return CheckedUpload(file, rows, names, client * rows, subject * rows, held_out)


def _fit_sums(headers: Headers, dimension: int, classes: int) -> None:
    counts, moment = headers["counts"], headers["moment"]
    if counts.dtype != np.int64 or counts.shape != (classes,):
        raise UploadError(f"counts must be {classes} int64 numbers, one for each class")
    if moment.dtype != np.int64 or moment.shape != (dimension, classes):
        raise UploadError(f"moment must be an int64 matrix of {dimension} by {classes}")


def _fit_form(headers: Headers, rows: int, dimension: int, sketches: bool) -> None:
    forms = [name for name in FORMS if name in headers]
    if "sketch" in forms and not sketches:
        raise UploadError("this model's method is exact: send gram or factor, not a sketch")
    if len(forms) != 1:
        raise UploadError("a message needs exactly one of gram, factor and sketch")
    form = forms[0]
    matrix = headers[form]
    if form == "gram":
        if matrix.dtype != np.int64 or matrix.shape != (dimension * (dimension + 1) // 2,):
            raise UploadError(
                f"gram must be the upper triangle by rows: {dimension * (dimension + 1) // 2} "
                "int64 numbers"
            )
        return
    kind = np.float64 if form == "factor" else np.int64
    if (
        matrix.dtype != kind
        or matrix.ndim != 2
        or matrix.shape[1] != dimension
        or not 1 <= matrix.shape[0] <= min(rows, dimension)
    ):
        raise UploadError(
            f"{form} must be a {np.dtype(kind).name} matrix of {dimension} columns and at "
            "most as many rows as it stands for, or as columns"
        )
    if form == "sketch":
        _fit_sketch(headers)


def _fit_sketch(headers: Headers) -> None:
    if any(name not in headers for name in SKETCH_FIELDS):
        raise UploadError("a sketch needs its shift and its residual")
    if headers["shift"].dtype != np.int64 or headers["shift"].shape != ():
        raise UploadError("shift must be one int64 number from 0 to 62")
    if headers["residual"].dtype != np.float64 or headers["residual"].shape != ():
        raise UploadError("residual must be one float64 number, not negative and finite")


def _check_form(arrays: _Arrays) -> _Arrays:
    """Return the Gram matrix in the one form that `_fit_form` found."""
    (form,) = (name for name in FORMS if name in arrays)
    if form == "factor" and not np.isfinite(arrays[form]).all():
        raise UploadError("factor holds a NaN or an infinity")
    if form != "sketch":
        return {form: arrays[form]}
    if not 0 <= int(arrays["shift"]) <= 62:
        raise UploadError("shift must be one int64 number from 0 to 62")
    if not 0 <= arrays["residual"].item() < inf:
        raise UploadError("residual must be one float64 number, not negative and finite")
    return {name: arrays[name] for name in (form, *SKETCH_FIELDS)}
