"""Plots as geometry, which the templates draw as SVG without scripts or styles.

Coordinates are rounded, so that equal data give equal pages. Values that are not finite numbers
are left out.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from lethe.catalogue import ATTACKS
from lethe.certificates.statement import CheckPart

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 34  # around the plotted area
SPAN, SPAN_HEIGHT = 260, 28  # of one interval
_COMPARES = re.compile(r"(below|above|between|at most|at least) ")
_NUMBER = re.compile(r"(?<![\w.])-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?!\.?\w)")


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a line: its coordinates, its label, and its value as text."""

    x: float
    y: float
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Values in order. ticks: heights with their values."""

    points: tuple[Point, ...]
    ticks: tuple[Point, ...]

    @property
    def path(self) -> str:
        """The points in the format of an SVG polyline."""
        return " ".join(f"{one.x},{one.y}" for one in self.points)


@dataclass(frozen=True, slots=True)
class Interval:
    """A measured interval, the value in it, and the limits that it is compared with."""

    low: float
    high: float
    value: float | None
    limits: tuple[float, ...]
    ends: tuple[str, str]


def number(text: str) -> float | None:
    """Return a finite number, None for any other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


def line(values: Sequence[tuple[str, str]]) -> Curve | None:
    """Return labelled values as a line, None if there are fewer than two numbers."""
    found = [(label, text, number(text)) for label, text in values]
    known = [(label, text, value) for label, text, value in found if value is not None]
    if len(known) < 2:
        return None
    low, high = _range([value for _, _, value in known])
    step = (WIDTH - LEFT - RIGHT) / (len(known) - 1)
    points = tuple(
        Point(round(LEFT + at * step, 1), _height(value, low, high), label, text)
        for at, (label, text, value) in enumerate(known)
    )
    ticks = tuple(
        Point(LEFT, _height(at, low, high), f"{at:.4g}", f"{at:.4g}")
        for at in (low, (low + high) / 2, high)
    )
    return Curve(points, ticks)


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * 0.15 or abs(high) * 0.05 or 1.0
    bottom, top = low - room, high + room
    if low >= 0 and high <= 1:  # shares stay shares
        bottom, top = max(0.0, bottom), min(1.0, top)
    return bottom, top


def _height(value: float, low: float, high: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low), 1)


def interval(check: CheckPart) -> Interval | None:
    """Return the interval of a check with its limits, None if it has none to draw."""
    if check.interval is None:
        return None
    low, high = map(number, check.interval)
    if low is None or high is None:
        return None
    value = _leading(check.value)
    texts = [] if check.threshold is None else _limits(check.threshold)
    limits = [one for one in map(number, texts) if one is not None]
    seen = [low, high, *limits, *([] if value is None else [value])]
    least, most = min(seen), max(seen)
    room = (most - least) * 0.12 or abs(most) * 0.1 or 1.0
    least, most = least - room, most + room

    def place(at: float) -> float:
        return round(SPAN * (at - least) / (most - least), 1)

    return Interval(
        place(low),
        place(high),
        None if value is None else place(value),
        tuple(place(one) for one in limits),
        check.interval,
    )


@dataclass(frozen=True, slots=True)
class Attack:
    """How well an attack tells erased rows from unseen ones: AUC from 0 to 1, with its band."""

    name: str
    is_after: bool
    value: float
    low: float
    high: float


def attacks(checks: Sequence[CheckPart]) -> list[Attack]:
    """Return the attacks of a certificate, each before (its control) and after the erasure."""
    found = []
    for check in checks:
        begins, _, ends = check.name.partition(":")
        is_after = begins in ATTACKS and ends == "auc"
        name = begins if is_after else ends
        if not is_after and not (begins == "control" and ends in ATTACKS):
            continue
        value = _leading(check.value)
        low, high = map(number, check.interval or ("", ""))
        if value is None or low is None or high is None:
            continue
        if 0 <= low <= value <= high <= 1:
            found.append(Attack(name, is_after, value, low, high))
    return sorted(found, key=lambda one: (one.name, one.is_after))


def _leading(value: str) -> float | None:
    """Return the number that a value begins with: "0.5131 (40 forget, 40 unseen rows)"."""
    found = _NUMBER.match(value)
    return None if found is None else number(found[0])


def _limits(threshold: str) -> list[str]:
    """Return the numbers of a threshold: "below 0.05", "between 0.4 and 0.6"."""
    if number(threshold) is not None:
        return [threshold]
    words = _COMPARES.match(threshold)
    count = 0 if words is None else 2 if words[1] == "between" else 1
    return _NUMBER.findall(threshold)[:count]
