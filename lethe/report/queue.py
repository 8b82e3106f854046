"""The queue of cases as CSV, for the console and `lethe case list`."""

import csv
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

COLUMNS = (
    "ref", "case", "model", "state", "regulation", "requester", "assignee", "received_at",
    "due_at", "days_left", "overdue", "held",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # starts of cells that spreadsheets compute


def write_lines(out: TextIO, items: Iterable[Mapping[str, Any]]) -> None:
    """Write a line of each item. Texts that a spreadsheet would compute get an apostrophe."""
    writer = csv.writer(out, lineterminator="\n")
    for item in items:
        values = (item[name] for name in COLUMNS)
        writer.writerow(
            f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
            for value in values
        )
