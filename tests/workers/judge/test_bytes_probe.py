"""The probe finds traces in any bytes, and mistakes no retained row for an erased one."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from workers.judge.bytes_probe import ProbeClaim, Sought, check_probe, probe

RNG = np.random.default_rng(0)
GONE = RNG.normal(size=(3, 6)).astype(np.float32)
KEPT = RNG.normal(size=(40, 6)).astype(np.float32)
CENTROIDS = RNG.normal(size=(2, 6)).astype(np.float32)
SOUGHT = Sought(
    vectors=GONE,
    ids=["customer-01", "c2", "κλειδί"],
    retained=KEPT,
    retained_ids={"customer-011", "c22", "κλειδί 2"},
    public=CENTROIDS,
    words=b"vectors",
)
TABLE = "\n".join(["", *sorted(SOUGHT.retained_ids), ""]).encode()
HONEST = b"head" + CENTROIDS.tobytes() + TABLE + b"\0" * 40 + KEPT.tobytes()


def found(data: bytes, sought: Sought = SOUGHT, *, table: bool = True) -> int:
    """Return how many rows are found in a file, whatever precedes it."""
    counts = {probe({"f": b"\7" * shift + data}, ["f"] * table, sought)[0] for shift in (0, 3)}
    (count,) = counts
    return count


def test_retained_rows_and_public_ones_are_no_trace() -> None:
    assert found(HONEST) == 0


@pytest.mark.parametrize(
    "trace",
    [
        GONE[0].tobytes(),
        GONE[1][1:5].tobytes(),  # 16 bytes of it
        KEPT[3][:2].tobytes() + GONE[2][2:].tobytes(),  # the rest is another's
        b"\ncustomer-01\n",
        b"xcustomer-01y",
        "\nκλειδί\n".encode(),
    ],
    ids=["vector", "part", "overwritten", "line", "within", "utf-8"],
)
@pytest.mark.parametrize("where", ["before", "between", "after"])
def test_what_is_left_is_found_wherever_it_lies(trace: bytes, where: str) -> None:
    at = {"before": 0, "between": len(HONEST) - 24 * 20, "after": len(HONEST)}[where]
    assert found(HONEST[:at] + trace + HONEST[at:]) == 1


def test_a_short_id_is_a_trace_in_a_table_and_chance_in_numbers() -> None:
    assert found(HONEST + b"\nc2\n") == 1
    assert found(HONEST + b"\nc2\n", table=False) == 0


def test_an_erased_row_that_equals_a_retained_one_is_no_trace() -> None:
    assert found(HONEST, replace(SOUGHT, vectors=np.concatenate([GONE[:2], KEPT[5:6]]))) == 0


def test_a_run_that_lies_across_two_retained_rows_is_no_trace() -> None:
    """With few distinct values, the ends of two rows may read like an erased one."""
    few = np.array([[0, 0, 0, 1, 2, 3], [4, 5, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1]], np.float32)
    gone = np.array([[1, 2, 3, 4, 5, 0], [0, 1, 0, 0, 0, 0], [0] * 6], np.float32)
    sought = replace(SOUGHT, vectors=gone, retained=few)
    data = np.concatenate([few, few[2:]]).tobytes()
    assert found(data, sought) == 0
    assert found(data + gone[0].tobytes(), sought) == 1
    assert found(data + gone[1].tobytes(), sought) == 1


def test_a_vector_of_zeros_can_only_be_told_by_its_id() -> None:
    zeros = np.zeros((3, 6), np.float32)
    assert probe({"f": HONEST}, {"f"}, replace(SOUGHT, vectors=zeros)) == (0, 3)


@pytest.mark.parametrize(
    ("changes", "passed", "undecided"),
    [
        ({}, True, False),
        ({"unlike": 1}, True, False),
        ({"found": 1}, False, False),
        ({"found": -1}, False, False),
        ({"logged": False}, False, False),
        ({"logged": None}, False, True),
        ({"rows": 0}, False, True),
        ({"files": 0}, False, True),
    ],
)
def test_a_probe_is_judged(changes: dict[str, Any], passed: bool, undecided: bool) -> None:
    claim = replace(ProbeClaim(files=3, rows=2, found=0, unlike=0, logged=True), **changes)
    judgement = check_probe(claim)
    assert (judgement.check.passed, judgement.undecided) == (passed, undecided)
