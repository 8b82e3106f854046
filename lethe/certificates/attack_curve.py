"""The ROC curve of an attack, as the value of the reported check `ATTACK:roc`.

The value gives the number of tested rows above each of a bounded number of thresholds: ranks,
and no score of any row. Together with the band it bounds the attack's true curve at all
thresholds at once.
"""

import re
from itertools import pairwise

from lethe.records import dataclass

SUFFIX = ":roc"
MOST = 33  # points per curve
LEVEL = "95 %"
# The space between two points is required: if it were optional, a run of digits could be split
# in many ways and a hostile value would cause catastrophic backtracking.
_POINTS = r"(\d{1,9}/\d{1,9}(?: \d{1,9}/\d{1,9})*)"
_VALUE = re.compile(
    r"(\d{1,9}) forget, (\d{1,9}) unseen rows; unseen/forget rows above a threshold: "
    rf"after {_POINTS}; before {_POINTS}; band at 95 %: "
    r"false positive rate ±([0-9.]{1,12}), true positive rate ±([0-9.]{1,12})",
    re.ASCII,
)

Counts = tuple[tuple[int, int], ...]
Line = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class AttackCurve:
    """Counts of (unseen, forget) rows above falling thresholds, from (0, 0) to all rows.

    after, before: for the model after and before the erasure. reach: maximum error of the false
    and of the true positive rate, at all thresholds at once.
    """

    forget: int
    unseen: int
    after: Counts
    before: Counts
    reach: tuple[str, str]

    def rates(self, counts: Counts) -> Line:
        """Return points as (false positive rate, true positive rate)."""
        return tuple((false / self.unseen, true / self.forget) for false, true in counts)

    def band(self, counts: Counts) -> tuple[Line, Line]:
        """Return the corners of the lower and the upper edge of a curve's band.

        Between two neighbouring points the sample curve lies in the rectangle that they span,
        so the true curve lies in that rectangle extended by `reach` on each side. The band is
        the union.
        """
        wide, high = float(self.reach[0]), float(self.reach[1])
        points = self.rates(counts)
        upper, lower = [(0.0, 0.0)], [(0.0, 0.0)]
        for (left, low), (right, top) in pairwise(points):
            start, end = max(0.0, left - wide), min(1.0, right + wide)
            upper += [(start, upper[-1][1]), (start, min(1.0, top + high))]
            floor = max(0.0, low - high)
            lower += [(lower[-1][0], floor), (end, floor)]
        upper.append((1.0, upper[-1][1]))
        return tuple(lower), tuple(upper)


def spelled(curve: AttackCurve) -> str:
    """Return the value of the check."""
    after, before = _points(curve.after), _points(curve.before)
    return (
        f"{curve.forget} forget, {curve.unseen} unseen rows; unseen/forget rows above a "
        f"threshold: after {after}; before {before}; band at {LEVEL}: "
        f"false positive rate ±{curve.reach[0]}, true positive rate ±{curve.reach[1]}"
    )


def summary(value: str) -> str:
    """Return a value as a line for people: a curve without its points, others unchanged."""
    curve = parse(value)
    if curve is None:
        return value
    return (
        f"{len(curve.after)} points on {curve.forget} forget and {curve.unseen} unseen rows, "
        f"band of ±{curve.reach[0]} and ±{curve.reach[1]} at {LEVEL}; see the PDF or HTML"
    )


def _points(counts: Counts) -> str:
    return " ".join(f"{false}/{true}" for false, true in counts)


def parse(value: str) -> AttackCurve | None:
    """Parse the curve in a value; None if it is not a curve or is inconsistent."""
    found = _VALUE.fullmatch(value)
    if found is None:
        return None
    forget, unseen = int(found[1]), int(found[2])
    after = _counts(found[3])
    before = _counts(found[4])
    curve = AttackCurve(forget, unseen, after, before, (found[5], found[6]))
    good = all(_is_curve(one, unseen, forget) for one in (after, before))
    if not good or not all(_is_rate(one) for one in curve.reach):
        return None
    return curve if spelled(curve) == value else None


def _counts(text: str) -> Counts:
    pairs = (one.split("/") for one in text.split())
    return tuple((int(false), int(true)) for false, true in pairs)


def _is_curve(counts: Counts, unseen: int, forget: int) -> bool:
    if len(counts) > MOST or unseen < 1 or forget < 1:
        return False
    rises = all(a[0] <= b[0] and a[1] <= b[1] and a != b for a, b in pairwise(counts))
    return rises and counts[0] == (0, 0) and counts[-1] == (unseen, forget)


def _is_rate(text: str) -> bool:
    try:
        return 0 <= float(text) < 10  # with very few rows a band is wider than the plot
    except ValueError:
        return False
