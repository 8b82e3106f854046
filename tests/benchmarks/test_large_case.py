"""The benchmark of large cases: it ends with a certificate and says what that took."""

import re

import pytest

from benchmarks.large_case import measure


def test_a_case_is_certified_and_measured(capsys: pytest.CaptureFixture[str]) -> None:
    measure(20)
    said = capsys.readouterr().out
    assert said.startswith("20 records of one person, of 40 rows\n")
    for name, unit in (
        ("opening the case", r"s \([0-9.]+\)"), ("execution to certificate", r"s \([0-9.]+\)"),
        ("evidence", "MB"), ("largest memory", "GiB"),
    ):  # fmt: skip
        assert re.search(rf"^  {name} +[0-9]+\.[0-9]+ {unit}$", said, re.MULTILINE), said
