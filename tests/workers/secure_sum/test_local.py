"""What a client's own rows are refused for, before anything is sent."""

import io
from typing import Any

import numpy as np
import pytest

from workers.errors import RefusedError
from workers.secure_sum.local import LocalRows, message_of, parse_rows

ROWS = LocalRows(np.ones((2, 1)), np.zeros(2, np.int64), ["a"] * 2, ["r1", "r2"], ["a"] * 2)


def test_records_that_are_missing_are_counted_as_missing() -> None:
    with pytest.raises(
        RefusedError, match="2 of the 3 records asked for are not in these rows"
    ):
        message_of(ROWS, ["r1", "r8", "r9"], {})
    with pytest.raises(RefusedError, match="name at least one"):
        message_of(ROWS, [], {})


ARRAYS: dict[str, Any] = {
    "features": np.ones((3, 2), np.float32),
    "labels": np.array([0, 1, 1]),
    "clients": np.array(["a", "a", "b"]),
    "records": np.array(["r1", "r2", "r3"]),
}


def packed(**changes: Any) -> bytes:
    body = io.BytesIO()
    np.savez(body, allow_pickle=False, **{**ARRAYS, **changes})
    return body.getvalue()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.array([])}, "the file has no rows"),
        ({"labels": np.array([0.9, 1.0, 1.0])}, "labels: must be one integer"),
        ({"labels": np.array(["0", "1", "1"])}, "labels: must be one integer"),
        ({"records": np.array([1.0, 2.0, 3.0])}, "records: must be one integer or string"),
        ({"records": np.array([b"r1", b"r2", b"r3"])}, "records: must be one integer"),
        ({"records": np.array(["r1", "r2", "r1"])}, "records: an id repeats"),
        ({"records": np.array(["r1", "r2"])}, "records: must be one integer or string"),
        ({"clients": np.array([1.0, 2.0, np.nan])}, "clients: must be one integer or string"),
        ({"subjects": np.array([True, False, True])}, "subjects: must be one integer or"),
        ({"is_test": np.array(["False", "False", "True"])}, "is_test: must be booleans"),
        ({"features": np.full((3, 2), 2**53 + 1)}, "features: holds an integer above 2"),
    ],
)
def test_rows_that_would_be_read_as_others_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    """A missing client became "nan", record 1 became "1.0", and label 0.9 class 0."""
    assert parse_rows(packed()).records == ["r1", "r2", "r3"]
    with pytest.raises(RefusedError, match=message):
        parse_rows(packed(**changes))
