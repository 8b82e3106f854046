"""Whose each row of an upload is, checked, and the upload packed as workers read it."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.problems import UploadError
from app.uploads.checked import CheckedUpload
from app.uploads.npz import ids

OWNERS = ("clients", "records", "subjects")  # arrays of ids, one for each row


def pack_owned(
    arrays: Mapping[str, NDArray[np.generic]],
    kept: Mapping[str, NDArray[Any]],
    rows: int,
    *,
    records_required: bool,
) -> CheckedUpload:
    """Return `kept`, which was checked, with the ids of its `rows` rows in `arrays`.

    `subjects` defaults to the clients and, unless `records_required`, `records` to the row
    numbers, which are distinct within one upload only.

    Raises:
        UploadError: An array of ids is missing, has a wrong shape or type, or ids repeat.
    """
    if records_required and "records" not in arrays:
        raise UploadError("the .npz lacks: records")
    clients = ids(arrays["clients"], "clients", rows)
    records = ids(arrays.get("records", np.arange(rows)), "records", rows)
    subjects = ids(arrays["subjects"], "subjects", rows) if "subjects" in arrays else clients
    if len(set(records)) != rows:
        raise UploadError("record ids repeat: a record is its id, so each needs its own")
    owners = {"clients": clients, "records": records, "subjects": subjects}
    packed = io.BytesIO()
    named = {name: np.array(values) for name, values in owners.items()}
    np.savez(packed, allow_pickle=False, **kept, **named)
    return CheckedUpload(packed.getvalue(), rows, records, clients, list(subjects))
