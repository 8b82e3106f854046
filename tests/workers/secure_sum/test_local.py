"""What a client's own rows are refused for, before anything is sent."""

import numpy as np
import pytest

from workers.errors import RefusedError
from workers.secure_sum.local import LocalRows, message_of

ROWS = LocalRows(np.ones((2, 1)), np.zeros(2, np.int64), ["a"] * 2, ["r1", "r2"], ["a"] * 2)


def test_records_that_are_missing_are_counted_as_missing() -> None:
    with pytest.raises(
        RefusedError, match="2 of the 3 records asked for are not in these rows"
    ):
        message_of(ROWS, ["r1", "r8", "r9"], {})
    with pytest.raises(RefusedError, match="name at least one"):
        message_of(ROWS, [], {})
