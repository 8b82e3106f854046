"""A sketch sent from a client to a server: both get the same integers."""

from dataclasses import replace

import numpy as np
import pytest

from tests.workers.methods.ridge.sketches import oracle
from workers.arrays import Rows
from workers.errors import ExactnessError, RefusedError
from workers.methods.ridge.sketches.kinds import compress, from_sketch, known
from workers.methods.ridge.statistics.message import Message, check_message, summarise

D, C = 24, 3


def exact(n: int = 60) -> tuple[Rows, Message]:
    rows = Rows(oracle.decaying_codes(0, n, D), np.arange(n) % C)
    return rows, summarise(rows, D, C, bits=16)


@pytest.mark.parametrize("kind", known())
@pytest.mark.parametrize("rank", [1, 6, 24])
def test_what_the_server_makes_of_it_is_within_the_residual(kind: str, rank: int) -> None:
    rows, message = exact()
    small, sent = compress(message, rank, kind, codes=rows.codes)
    check_message(sent, bits=16)  # rows may exist that are so far from it
    # The server has only factor, shift, moment, counts and residual.
    received = from_sketch(
        replace(small, factor=small.factor.copy()), message.statistics.moment, message.counts
    )
    assert np.array_equal(received.statistics.gram, sent.statistics.gram)
    assert np.array_equal(received.statistics.moment, message.statistics.moment)
    assert (received.statistics.rows, received.residual) == (60, sent.residual)
    error = (message.statistics.gram - sent.statistics.gram).astype(float)
    assert np.linalg.norm(error, 2) <= sent.residual * (1 + 1e-9)
    assert sent.factor is None


def test_fewer_bytes_than_the_triangle() -> None:
    _, message = exact()
    small, _ = compress(message, D // 4)
    assert small.payload_bytes == 4 * D * (D // 4)
    assert small.payload_bytes < 8 * D * (D + 1) // 2 / 4 + 1


def test_a_sketch_of_a_sketch_adds_what_both_neglect() -> None:
    _, message = exact()
    _, once = compress(message, 10)
    _, twice = compress(once, 4)
    error = (message.statistics.gram - twice.statistics.gram).astype(float)
    assert np.linalg.norm(error, 2) <= twice.residual
    assert twice.residual > once.residual


def test_one_record_is_exact() -> None:
    rows, message = exact(1)
    small, sent = compress(message, 5, codes=rows.codes)
    assert (sent.residual, small.shift, small.rank) == (0.0, 0, 1)
    assert np.array_equal(sent.statistics.gram, message.statistics.gram)
    # Such a sketch *is* the record, up to its sign.
    assert np.array_equal(np.abs(small.factor), np.abs(rows.codes.astype(np.int64)))


def test_what_is_no_sketch_is_refused() -> None:
    _, message = exact()
    small, _ = compress(message, 5)
    moment, counts = message.statistics.moment, message.counts
    with pytest.raises(RefusedError, match="shift of 0 to 48"):
        from_sketch(replace(small, shift=-1), moment, counts)
    with pytest.raises(ExactnessError, match="smaller batches"):
        from_sketch(replace(small, factor=small.factor << 3, shift=0), moment, counts)
    wrong = from_sketch(small, moment, counts + 1)
    with pytest.raises(RefusedError, match="add up to the number of rows"):
        check_message(replace(wrong, counts=counts), bits=16)
