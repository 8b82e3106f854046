"""The Pareto front of one setting: compute against the gap in forget accuracy that is left."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from benchmarks.unlearning.contenders import AGAIN, ORIGINAL, RETRAIN, ablated
from benchmarks.unlearning.markdown import points, table, times
from benchmarks.unlearning.names import name_of, ordered
from benchmarks.unlearning.summary import Seeds


@dataclass(frozen=True, slots=True)
class Place:
    """Where a method stands.

    compute: mean counted operations over the retraining's. gap, half: mean |forget accuracy -
    the retrained model's| in points and its 95 % interval, half NaN for one seed. whole:
    measured in every seed.
    """

    label: str
    compute: float
    gap: float
    half: float
    whole: bool


def places(seeds: Seeds) -> list[Place]:
    """Return where each method stands; variants that only tables 4 and 5 are about are not."""
    found = []
    for label in ordered(seeds.labels):
        cheaper, gap = seeds.ratio(label, "flops"), seeds.gap(label, "forget")
        if label in (ORIGINAL, AGAIN) or ablated(label) or isnan(cheaper.mean):
            continue
        if not isnan(gap.mean):
            whole = gap.seeds == len(seeds.seeds)
            place = Place(label, 1 / cheaper.mean, 100 * gap.mean, 100 * gap.half, whole)
            found.append(place)
    return found


def front(found: Sequence[Place], nothing: float) -> list[Place]:
    """Return the places that none beats, the cheapest first.

    One beats another if it takes no more and leaves no more, and less of either. Doing nothing
    takes nothing and leaves `nothing` points, so whoever leaves as much is beaten. A mean over
    fewer seeds is not comparable, and neither beats nor is on the front.
    """
    best, kept = nothing, []
    for place in sorted(found, key=lambda one: (one.compute, one.gap)):
        if place.whole and place.gap < best:
            best = place.gap
            kept.append(place)
    return kept


def nothing(seeds: Seeds) -> float:
    """Return the gap in points that doing nothing leaves."""
    return 100 * seeds.gap(ORIGINAL, "forget").mean


def render(seeds: Seeds) -> str:
    """Return the front by name, with what the plot leaves out: what it did to test rows."""
    all_places = places(seeds)
    kept = front(all_places, nothing(seeds))
    named = "; ".join(name_of(place.label) for place in kept if place.label != RETRAIN)
    text = (
        f"On the front, cheapest first: {named or 'only retraining'}. Every other method "
        "measured in all seeds is dominated by one of these, by retraining, or by doing "
        f"nothing ({nothing(seeds):.1f} points): by means over seeds it is neither cheaper nor "
        "closer to the retrained model in forget accuracy.\n\n"
    )
    head = ("on the front", "FLOPs ×", "forget acc. Δ", "test acc. Δ", "test acc.")
    text += table(
        head,
        (
            (
                name_of(place.label),
                times(seeds.ratio(place.label, "flops")),
                points(seeds.gap(place.label, "forget")),
                points(seeds.gap(place.label, "test")),
                points(seeds.mean(place.label, "test")),
            )
            for place in kept
        ),
    )
    partly = [name_of(place.label) for place in all_places if not place.whole]
    if partly:
        text += f"\nNot compared, because some seed has no result: {'; '.join(partly)}.\n"
    return text
