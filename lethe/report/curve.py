"""The ROC curve of an attack as SVG: after the erasure with its band, before it for comparison.

Colours are attributes of the drawing, for PDF and for files that people save; a page's style
sheet may replace them by its own, by class.
"""

from itertools import pairwise

from lethe.certificates.attack_curve import AttackCurve, Line
from lethe.report.markup import Markup, element

SIZE, LEFT, TOP = 240, 40, 10  # of the square, and the margins left of and above it
WIDTH, HEIGHT = LEFT + SIZE + 14, TOP + SIZE + 38
INK, QUIET = "#0b57b0", "#4d5661"
_BAND = {"class": "band", "fill": INK, "fill-opacity": "0.18"}
_BEFORE = {"stroke-dasharray": "2 4", "stroke-width": "2"}
_TEXT = {
    "class": "axis",
    "text-anchor": "middle",
    "font-size": "11",
    "font-family": "DejaVu Sans, system-ui, sans-serif",
    "fill": QUIET,
}


def curve_svg(curve: AttackCurve, title: str, false_rate: str, true_rate: str) -> Markup:
    """Return a plot. title: its text alternative; false_rate, true_rate: names of the axes."""
    lower, upper = curve.band(curve.after)
    bottom, right, middle = TOP + SIZE, LEFT + SIZE, TOP + SIZE / 2
    drawn = [
        _rectangle(),
        _line("limit", ((0, 0), (1, 1)), QUIET, **{"stroke-dasharray": "6 4"}),
        element("polygon", **{**_BAND, "points": _places((*upper, *reversed(lower)))}),
        _line("before", curve.rates(curve.before), QUIET, **_BEFORE),
        _line("series", curve.rates(curve.after), INK, **{"stroke-width": "2"}),
        _text("0", LEFT, bottom + 14),
        _text("1", right, bottom + 14),
        _text(false_rate, LEFT + SIZE / 2, bottom + 30),
        _text("0", LEFT - 8, bottom + 4),
        _text("1", LEFT - 8, TOP + 8),
        _text(true_rate, 14, middle, transform=f"rotate(-90 14 {middle:g})"),
    ]
    own = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {WIDTH} {HEIGHT}"}
    return element(
        "svg", drawn, **own, **{"class": "curve", "role": "img", "aria-label": title}
    )


def _rectangle() -> Markup:
    sides = {"x": str(LEFT), "y": str(TOP), "width": str(SIZE), "height": str(SIZE)}
    return element("rect", class_="frame", fill="none", stroke=QUIET, **sides)


def _line(name: str, line: Line, colour: str, **attributes: str) -> Markup:
    own = {"class": name, "points": _places(line), "fill": "none", "stroke": colour}
    return element("polyline", **own, **attributes)


def _places(line: Line) -> str:
    """Return points for SVG, without consecutive duplicates."""
    places = [(round(LEFT + SIZE * x, 1), round(TOP + SIZE * (1 - y), 1)) for x, y in line]
    kept = [places[0], *(b for a, b in pairwise(places) if a != b)]
    return " ".join(f"{x:g},{y:g}" for x, y in kept)


def _text(text: str, x: float, y: float, **attributes: str) -> Markup:
    return element("text", text, x=f"{x:g}", y=f"{y:g}", **_TEXT, **attributes)
