"""Tables of the command line: in a file, on a terminal, with and without `rich`."""

import sys

import pytest

from lethe.cli import options

HEADS = ("model", "rows", "note")
ROWS = [("churn", "1200", "[bold]x[/bold]"), ("y\x1b[31m", "7", "-")]


def test_columns_are_as_wide_as_their_texts(capsys: pytest.CaptureFixture[str]) -> None:
    options.print_table(HEADS, ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "MODEL   ROWS  NOTE",
        "churn   1200  [bold]x[/bold]",
        "y\N{REPLACEMENT CHARACTER}[31m     7  -",
    ]


def test_no_row_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    options.print_table(HEADS, [])
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "nothing to list\n")


@pytest.mark.parametrize("installed", [True, False])
def test_a_terminal_wraps_cells_if_it_can(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], installed: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    if not installed:
        monkeypatch.setattr(options, "find_spec", lambda name: None)
    options.print_table(HEADS, [("churn", "1200", "word " * 12), *ROWS])
    shown = capsys.readouterr().out
    assert "[bold]x[/bold]" in shown  # the markup of another machine is a text
    assert "\x1b[31m" not in shown
    assert (shown.count("\n") > 4) is installed  # more lines than rows
    options.print_table(HEADS, [("0b7e3f0c-5a39-4c57-9c6b-8c1f0c6b2c55", "1200", "a b")])
    assert "0b7e3f0c-5a39-4c57-9c6b-8c1f0c6b2c55  1200  a b" in capsys.readouterr().out
