"""Numbers as the tables have them."""

from collections.abc import Iterable, Sequence
from math import isfinite, isnan

from benchmarks.unlearning.summary import Interval

NONE = "–"


def table(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    names = list(head)
    rows = [names, ["---"] * len(names), *(list(row) for row in body)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def refused(name: str, reason: str, columns: int, *paper: str) -> tuple[str, ...]:
    """Return the line of a method that refused, filled up to so many columns.

    paper: the paper's figures, where the last column has them.
    """
    return (name, f"refused: {reason}", *[""] * (columns - 2 - len(paper)), *paper)


def unrun(name: str, columns: int, paper: str, why: str = "not run") -> tuple[str, ...]:
    """Return the line of a method that was not run, with the paper's figures at its end."""
    return (name, why, *[""] * (columns - 3), paper)


def between(values: Sequence[float]) -> str:
    """Return the least and the largest of some numbers."""
    if not values:
        return NONE
    least, most = (f"{value:.2g}" for value in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"


def points(value: Interval) -> str:
    """Return a share in percent, with its interval."""
    if isnan(value.mean):
        return NONE
    half = "" if isnan(value.half) else f" ± {100 * value.half:.1f}"
    return f"{100 * value.mean:.1f}{half}"


def with_gap(value: Interval, gap: Interval) -> str:
    """Return a share in percent and in brackets its gap with an interval."""
    if isnan(value.mean):
        return NONE
    return f"{100 * value.mean:.1f} ({points(gap)})"


def plain(value: Interval, digits: int = 3) -> str:
    """Return a number with its interval."""
    if isnan(value.mean):
        return NONE
    half = "" if isnan(value.half) else f" ± {value.half:.{min(digits, 2)}g}"
    return f"{value.mean:.{digits}g}{half}"


def share(value: Interval) -> str:
    """Return a share of 1 with its interval, by two digits."""
    if isnan(value.mean):
        return NONE
    half = "" if isnan(value.half) else f" ± {value.half:.2f}"
    return f"{value.mean:.2f}{half}"


def amount(value: Interval, *, interval: bool = False) -> str:
    """Return a large number as 1.23e+09, where asked with its interval if it varies."""
    if isnan(value.mean):
        return NONE
    half = f" ± {value.half:.1e}" if interval and value.half > 0 else ""
    return f"{value.mean:.2e}{half}"


def times(value: Interval) -> str:
    """Return how many times less, with its interval."""
    if isnan(value.mean):
        return NONE
    half = f" ± {value.half:.1f}" if value.half >= 0.05 else ""  # counts often do not vary
    if not isfinite(value.mean):
        return "∞"
    return f"{value.mean:.1f}{half}×" if value.mean >= 0.05 else f"{value.mean:.1g}×"


def seconds(value: Interval) -> str:
    """Return seconds, with their interval."""
    if isnan(value.mean):
        return NONE
    half = "" if isnan(value.half) else f" ± {value.half:.1f}"
    return f"{value.mean:.1f}{half}"
