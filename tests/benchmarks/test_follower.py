"""The benchmark of `lethe backup follow` runs, and a round writes less than the database."""

from pathlib import Path

from benchmarks.follower import measure


def test_a_round_writes_a_part(tmp_path: Path) -> None:
    found = measure(tmp_path, 2000, 2000)
    assert all(value >= 0 for value in found.values())
    assert 0 < found["append_round_mib"] < found["database_mib"]
    assert 0 < found["changed_records_round_mib"] < found["database_mib"]
