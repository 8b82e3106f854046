"""Claims against results made by hand: what bears them out, what does not, what cannot tell."""

from collections.abc import Mapping, Sequence

import pytest

from benchmarks.unlearning import claims
from benchmarks.unlearning.checks import (
    Check,
    at_most,
    closer,
    costs_less,
    faster,
    growing,
    higher,
    lower,
    within_noise,
)
from benchmarks.unlearning.contenders import AGAIN, FIRST, ORIGINAL, RETRAIN, planned
from benchmarks.unlearning.records import Record
from benchmarks.unlearning.settings import SETTINGS
from benchmarks.unlearning.summary import Seeds, of

Values = Mapping[str, Sequence[float]]


def seeds(costs: Values | None = None, **own: Sequence[float]) -> Seeds:
    """Results by label and seed: every measure is `own`, 0.5 for retraining; costs, 100."""
    costs = costs or {}
    lines = {ORIGINAL: (0.9,) * 3, RETRAIN: (0.5,) * 3, **own}
    parts = ("flops", "seconds")
    records = [
        Record(
            "x",
            seed,
            label,
            "p",
            dict.fromkeys(("test", "forget", "song", "asr"), value),
            dict.fromkeys(parts, costs.get(label, (100.0,) * 3)[seed]),
        )
        for label, values in lines.items()
        for seed, value in enumerate(values)
    ]
    return of({record.key: record for record in records}, "x")


@pytest.mark.parametrize(
    ("check", "mine", "borne"),
    [
        (closer("mine", ("other",)), (0.55, 0.56, 0.54), True),  # other: 0.2 from 0.5
        (closer("mine", ("other",)), (0.85, 0.86, 0.84), False),
        (closer("mine", ("other",)), (0.69, 0.75, 0.55), None),
        (within_noise("mine", "song"), (0.51, 0.51, 0.51), True),  # noise: 0.02
        (within_noise("mine", "song"), (0.50, 0.50, 0.54), None),  # nearer, in two seeds
        (within_noise("mine", "song"), (0.61, 0.62, 0.63), False),
        (within_noise("mine", "song"), (0.50, 0.50, 0.60), None),
        (at_most("mine", "test", 5.0), (0.51, 0.49, 0.52), True),
        (at_most("mine", "test", 2.0), (0.51, 0.49, 0.58), None),
        (at_most("mine", "test", 2.0), (0.57, 0.56, 0.58), False),
        (at_most("mine", "test", 2.0), (0.43, 0.44, 0.42), False),
        (lower("mine", "asr"), (0.7, 0.71, 0.72), True),  # the original: 0.9
        (lower("mine", "asr"), (0.95, 0.96, 0.97), False),
        (lower("mine", "asr"), (0.5, 0.92, 0.97), None),
        (higher("mine", "other", "test"), (0.8, 0.81, 0.82), True),
        (higher("mine", "other", "test"), (0.6, 0.61, 0.62), False),
    ],
)
def test_a_difference_is_told_by_its_interval(
    check: Check, mine: Sequence[float], borne: bool | None
) -> None:
    found = check(seeds(None, mine=mine, other=(0.7, 0.7, 0.7), **{AGAIN: (0.52, 0.48, 0.52)}))
    assert found is not None
    assert found[1] is borne


def test_costs_are_held_to_the_mean_and_to_one_another() -> None:
    made = seeds(
        {"mine": (4.0, 5.0, 5.0), "other": (10.0, 10.0, 10.0)},
        mine=(0.5,) * 3,
        other=(0.5,) * 3,
    )
    assert faster("mine", 21)(made) == (
        "21.7 ± 7.2× in seconds, 21.7 ± 7.2× in operations",
        True,
    )
    assert faster("mine", 22)(made) == (
        "21.7 ± 7.2× in seconds, 21.7 ± 7.2× in operations",
        False,
    )
    assert costs_less("mine", "other")(made) == ("21.7 ± 7.2×; 10.0×", True)
    assert costs_less("other", "mine")(made) == ("10.0×; 21.7 ± 7.2×", False)
    assert faster("nobody", 1)(made) is None


@pytest.mark.parametrize(
    ("costs", "borne"),
    [
        (((20.0, 20.1, 20.2), (10.0, 10.1, 10.2), (5.0, 5.1, 5.2)), True),
        (((10.0, 10.1, 10.2), (5.0, 5.1, 5.2), (20.0, 20.1, 20.2)), False),
        (((10.0, 11.0, 30.0), (9.0, 10.0, 29.0), (5.0, 5.1, 5.2)), None),
        (((10.0, 10.0, 10.0), (9.9, 9.9, 9.9), (9.8, 9.8, 9.8)), False),  # a rise of 2 %
    ],
)
def test_a_trend_is_told_by_intervals_that_do_not_touch(
    costs: Sequence[Sequence[float]], borne: bool | None
) -> None:
    names = ("a", "b", "c")
    known = {
        name: seeds({"mine": cost}, mine=(0.5,) * 3)
        for name, cost in zip(names, costs, strict=True)
    }
    found = growing("mine", names)(known)
    assert found is not None
    assert found[1] is borne
    del known["b"]
    assert growing("mine", names)(known) is None


def test_every_claim_is_judged_once_its_methods_are_measured() -> None:
    parts = ("test", "forget", "song", "yeom", "kl", "asr")
    costs = dict.fromkeys(("flops", "bytes", "seconds"), 2.0)
    records = [
        Record(name, seed, part.label, "p", dict.fromkeys(parts, 0.5), costs)
        for name, setting in SETTINGS.items()
        for seed in (0, 1)
        for part in (*FIRST, *planned(setting.plan))
    ]
    by_key = {record.key: record for record in records}
    text = claims.render({name: of(by_key, name) for name in SETTINGS})
    said = [claim.says for claim in claims.CLAIMS] + [trend.says for trend in claims.TRENDS]
    assert [one for one in said if f"| {one} |" not in text] == []
    # The first claim, at one FLOP for each of retraining's, in each of its settings.
    rows = [line for line in text.splitlines() if said[0] in line]
    assert len(rows) == len(claims.CLAIMS[0].settings) * len(claims.CLAIMS[0].methods) == 20
    assert all(row.endswith("| 1.0× | **not reproduced** |") for row in rows)
