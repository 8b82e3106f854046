import hashlib
import struct

import numpy as np
import pytest

from tests.workers.methods.ridge.oracle import random_rows
from workers.arrays import Rows
from workers.errors import ArtifactError
from workers.methods.ridge.statistics.gram import (
    RidgeStatistics,
    accumulate,
    decode_statistics,
    encode_statistics,
    statistics_digest,
)

EXPONENTS, BITS, PENALTY = (-3, 0, 7), 16, 0.1


def example() -> RidgeStatistics:
    return accumulate([random_rows(np.random.default_rng(5), 9, 3, 2)], 3, 2)


def test_the_bytes_are_these() -> None:
    rows = Rows(np.array([[1, -2], [3, 4]], dtype=np.int16), np.array([0, 1]))
    data = encode_statistics(accumulate([rows], 2, 2), (-1, 5), 12, 0.5)
    # G = [[10, 10], [10, 20]], C = [[1, 3], [-2, 4]], written out by hand.
    assert data == b"lethe/ridge/v1\0\0" + struct.pack(
        "<IIQId2i3q4q", 2, 2, 2, 12, 0.5, -1, 5, 10, 10, 20, 1, 3, -2, 4
    )


def test_round_trip_and_digest() -> None:
    statistics = example()
    data = encode_statistics(statistics, EXPONENTS, BITS, PENALTY)
    again, exponents, bits, penalty = decode_statistics(data)
    assert np.array_equal(again.gram, statistics.gram)
    assert np.array_equal(again.moment, statistics.moment)
    assert (again.rows, exponents, bits, penalty) == (9, EXPONENTS, BITS, PENALTY)
    digest = statistics_digest(statistics, EXPONENTS, BITS, PENALTY)
    assert digest == hashlib.sha256(data).hexdigest()


def test_layout_in_memory_does_not_show() -> None:
    statistics = example()
    turned = RidgeStatistics(
        np.asfortranarray(statistics.gram), np.asfortranarray(statistics.moment), 9
    )
    assert statistics_digest(turned, EXPONENTS, BITS, PENALTY) == statistics_digest(
        statistics, EXPONENTS, BITS, PENALTY
    )


@pytest.mark.parametrize("change", ["gram", "moment", "rows", "exponents", "bits", "penalty"])
def test_every_part_is_in_the_digest(change: str) -> None:
    statistics = example()
    gram, moment = statistics.gram.copy(), statistics.moment.copy()
    rows, exponents, bits, penalty = 9, EXPONENTS, BITS, PENALTY
    if change == "gram":
        gram[0, 2] += 1
        gram[2, 0] += 1
    if change == "moment":
        moment[2, 1] -= 1
    if change == "rows":
        rows = 10
    if change == "exponents":
        exponents = (-3, 0, 8)
    if change == "bits":
        bits = 15
    if change == "penalty":
        penalty = float(np.nextafter(0.1, 1))
    changed = statistics_digest(RidgeStatistics(gram, moment, rows), exponents, bits, penalty)
    assert changed != statistics_digest(statistics, EXPONENTS, BITS, PENALTY)


def spoiled(how: str) -> bytes:
    data = encode_statistics(example(), EXPONENTS, BITS, PENALTY)
    return {
        "empty": b"",
        "cut in the header": data[:20],
        "cut": data[:-1],
        "longer": data + b"\0",
        "other magic": b"X" + data[1:],
        "other dimension": data[:16] + b"\4" + data[17:],
    }[how]


@pytest.mark.parametrize(
    "how",
    ["empty", "cut in the header", "cut", "longer", "other magic", "other dimension"],
)
def test_other_bytes_are_refused(how: str) -> None:
    with pytest.raises(ArtifactError):
        decode_statistics(spoiled(how))
