"""Names beside points of a figure such that none lies on another, nor on a point."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, pi

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MARKER = 5.0  # pixels from a point's centre that no name may cover
NEAR = 16.0  # pixels up to which a name needs no line to its point
RADII = np.array([12, 18, 26, 36, 48, 62, 78, 96, 120, 150, 190, 240, 300], dtype=np.float64)
ANGLES = np.arange(24) * (2 * pi / 24)
GAP = 3.0  # pixels beside a name
HALO = 2.0  # points of white around letters, for the lines below them


@dataclass(frozen=True, slots=True)
class Name:
    """A text and the point (x, y) in data coordinates that it belongs to."""

    text: str
    x: float
    y: float
    color: str
    weight: str = "normal"


def write(
    axes: Axes, names: Sequence[Name], taken: Sequence[Bbox], lines: Sequence[Bbox] = ()
) -> list[Annotation]:
    """Write names, the first ones nearest to their points; limits and layout are final.

    Boxes are in pixels. taken: no room, such as the legend. lines: thin boxes that a name
    avoids, but rather than stand far away it lies on them. A name for which there is no room
    within 300 pixels stands where it covers least.
    """
    points = [tuple(axes.transData.transform((name.x, name.y))) for name in names]
    boxes = [*taken, *(_around(x, y, MARKER, MARKER) for x, y in points)]
    room = axes.get_window_extent()
    written = []
    for name, (x, y) in zip(names, points, strict=True):
        note = axes.annotate(
            name.text,
            (name.x, name.y),
            textcoords="offset pixels",
            xytext=(0, 0),
            ha="center",
            va="center",
            fontsize=6.5,
            color=name.color,
            weight=name.weight,
            arrowprops={"arrowstyle": "-", "color": name.color, "linewidth": 0.4, "alpha": 0.7},
            path_effects=[withStroke(linewidth=HALO, foreground="#ffffff")],
        )
        size = note.get_window_extent()
        half = (size.width / 2 + GAP, size.height / 2)
        best = _best((x, y), half, boxes, lines, room)
        note.set_position((best[0] - x, best[1] - y))
        box = _around(*best, *half)
        if _distance(box, x, y) <= NEAR and note.arrow_patch is not None:
            note.arrow_patch.set_visible(False)
        boxes.append(box)
        written.append(note)
    return written


def _best(
    point: tuple[float, float],
    half: tuple[float, float],
    boxes: Sequence[Bbox],
    lines: Sequence[Bbox],
    room: Bbox,
) -> tuple[float, float]:
    """Return the centre that covers least, of those the nearest and freest of lines."""
    radius, angle = (part.ravel() for part in np.meshgrid(RADII, ANGLES, indexing="ij"))
    # Of a flat box the side that looks at the point is so far away, not its centre.
    x = point[0] + (radius + half[0]) * np.cos(angle)
    y = point[1] + radius * np.sin(angle)
    outside = 4 * half[0] * half[1] - _overlap(x, y, half, [room])
    covered = np.round(_overlap(x, y, half, boxes) + outside, 3)
    far = np.hypot(x - point[0], 2 * (y - point[1])) + _overlap(x, y, half, lines)
    found = int(np.lexsort((far, covered))[0])
    return float(x[found]), float(y[found])


def _overlap(x: Floats, y: Floats, half: tuple[float, float], boxes: Sequence[Bbox]) -> Floats:
    """Return the area in square pixels that a box around each (x, y) shares with boxes."""
    if not boxes:
        return np.zeros_like(x)
    left, low, right, high = np.array([box.extents for box in boxes]).T[:, :, None]
    wide = np.minimum(x + half[0], right) - np.maximum(x - half[0], left)
    tall = np.minimum(y + half[1], high) - np.maximum(y - half[1], low)
    shared: Floats = (wide.clip(0) * tall.clip(0)).sum(axis=0)
    return shared


def _around(x: float, y: float, wide: float, high: float) -> Bbox:
    return Bbox.from_extents(x - wide, y - high, x + wide, y + high)


def _distance(box: Bbox, x: float, y: float) -> float:
    return hypot(max(box.x0 - x, 0, x - box.x1), max(box.y0 - y, 0, y - box.y1))
