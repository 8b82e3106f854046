"""Durations of requests: each value for a few, the median for many."""

import pytest

from workers.demo.table import TableRow, print_table


def last_line(capsys: pytest.CaptureFixture[str], seconds: list[float]) -> str:
    print_table([TableRow("1 record", (), None, "0" * 32, one) for one in seconds])
    return capsys.readouterr().out.splitlines()[-1]


def test_few_are_all_told_and_many_by_their_median(capsys: pytest.CaptureFixture[str]) -> None:
    few = last_line(capsys, [27.85, 9.0])
    assert few == "Submission to certificate: 27.85 s, 9.00 s"
    many = last_line(capsys, [0.9, 0.1, 0.2, 0.3, 0.4, 0.5])
    assert many == "Submission to certificate: median 0.35 s"
