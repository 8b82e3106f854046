"""What the papers print, by table: figures of paper_figures.json, quoted and never measured.

The file has, for each table ("PUF III"), the paper's settings, its rows and their cells, each
as printed: misprints too. "ACU 4.3" and "Ridge 7.3" are the times that the text of these
sections gives.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("paper_figures.json")
NONE = "–"
HEAD = "paper"

Rows = Mapping[str, Mapping[str, str]]


@cache
def tables() -> Mapping[str, Mapping[str, Rows]]:
    """Return cells by table, setting, row and column."""
    found: dict[str, dict[str, dict[str, dict[str, str]]]] = json.loads(FILE.read_text())
    return found


def rows_of(table: str, setting: str) -> Rows:
    """Return the rows of one setting of a table. Raises KeyError for an unknown one."""
    return tables()[table][setting]


def figures(table: str, setting: str | None, row: str) -> str:
    """Return a row as one cell, each figure after its column's name; – where there is none.

    setting None: the paper has no setting to be held beside. Raises KeyError for a table or
    setting that the file does not have.
    """
    found = rows_of(table, setting).get(row, {}) if setting is not None else {}
    return "; ".join(f"{column} {value}" for column, value in found.items()) or NONE


def footnote(table: str, setting: str | None) -> str:
    """Return the sentence below a table that says where its column "paper" is from."""
    short, _, number = table.partition(" ")
    paper = "the ridge paper" if short == "Ridge" else short
    if setting is None:
        return f"Paper: {NONE}, table {number} of {paper} has no setting like this one.\n"
    return (
        f"Paper: {paper}, table {number}, {setting}, as printed. "
        f"{NONE}: that table has no such row.\n"
    )
