"""LiRA beside TensorFlow Privacy's, RMIA beside PrivacyGuard's (after its authors' code).

The same logits of one model and of reference models go into both. Where definitions differ,
what goes into the published code is changed, never what comes out of ours:

- TensorFlow Privacy divides squares by the number of models, ours by one less a row: its
  reference statistics are stretched about the mean of each row by the root of the ratio.
- Its offline score is two-sided, ours says on which side: the distance from its own peak
  is compared with our square, and the side with its difference to the mean.
- PrivacyGuard has γ = 1, ours 2: the population's answers are doubled. It averages over all
  models, ours over those with and without a row in equal parts: online every row is in
  exactly half of them.
"""

from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]

from tests.interop.attacks.answers import Flags, halves, references, side
from tests.interop.attacks.published import advanced_mia, aggregation, privacy_guard_rmia
from workers.arrays import Matrix
from workers.judge.attacks.attack import References, Setting
from workers.judge.attacks.lira import ENOUGH, lira
from workers.judge.attacks.outputs import Outputs, log_odds
from workers.judge.attacks.rmia import rmia
from workers.judge.inference.intervals import Vector

TESTED, OTHERS, GAIN = 150, 200, 1.0  # tested rows on each side, known non-members
GAMMA, OFFLINE = 2.0, 0.3  # γ and a of RMIA's paper
FEW, MANY = 16, 2 * ENOUGH + 2  # models: of the many, each row has a variance of its own


def differences(rng: np.random.Generator) -> dict[str, float]:
    """Return the largest difference of each quantity, by what was compared."""
    found = {}
    rows = 2 * TESTED + OTHERS
    uneven = rng.permuted(np.arange(FEW)[:, None] < rng.integers(2, FEW - 1, rows), axis=0)
    for name, included in (
        ("one variance", uneven),
        ("a variance for each row", halves(rng, MANY, rows)),
    ):
        found[f"TensorFlow Privacy, LiRA online, {name}"] = _online(_Case(rng, included))
    for name, models in (("one variance", FEW), ("a variance for each row", MANY)):
        without = np.zeros((models, rows), dtype=np.bool_)
        found[f"TensorFlow Privacy, LiRA offline, {name}"] = _offline(_Case(rng, without))
    return found | {
        "PrivacyGuard, RMIA online": _dominance(_Case(rng, halves(rng, FEW, rows))),
        "PrivacyGuard, RMIA offline": _dominance(
            _Case(rng, np.zeros((FEW, rows), dtype=np.bool_))
        ),
    }


class _Case:
    """One model, reference models (m, n), and both statistics of their log-odds.

    target (n,) and reference (m, n) are TensorFlow Privacy's, from the same logits as ours.
    """

    def __init__(self, rng: np.random.Generator, included: Flags) -> None:
        parts = [side(rng, TESTED, GAIN), side(rng, TESTED, 0.0), side(rng, OTHERS, 0.0)]
        labels = np.concatenate([part.labels for part in parts])
        others = references(rng, labels, included, GAIN)
        self.included = included
        self.setting = Setting(
            parts[0], parts[1], side(rng, OTHERS, GAIN), parts[2],
            References(np.array([log_odds(one) for one in others]), included),
        )  # fmt: skip
        self.target = np.concatenate([_statistic(part) for part in parts])
        self.reference = np.array([_statistic(one) for one in others])

    def stretched(self, chosen: Flags) -> list[Matrix]:
        """Return the chosen statistics of each tested row (k, 1), with our deviations."""
        rows = [self.reference[chosen[:, row], row] for row in range(2 * TESTED)]
        counts = np.array([len(row) for row in rows])
        factors = np.sqrt(counts / (counts - 1))
        if counts.min() < ENOUGH:
            factors[:] = np.sqrt(counts.sum() / (counts - 1).sum())
        return [
            (row.mean() + (row - row.mean()) * factor)[:, None]
            for row, factor in zip(rows, factors, strict=True)
        ]

    def lira(self) -> Vector:
        """Return our scores (2 * TESTED,) of the forget and the unseen rows."""
        scores = lira(self.setting)
        return np.concatenate([scores.forget, scores.unseen])


def _statistic(of: Outputs) -> Vector:
    found: Vector = advanced_mia.calculate_statistic(of.logits, of.labels, option="logit")
    return found


def _published_lira(case: _Case, target: Vector, option: str) -> Vector:
    """Return TensorFlow Privacy's scores (2 * TESTED,): of members they are the smaller."""
    inside, outside = case.stretched(case.included), case.stretched(~case.included)
    many = len(case.included) >= ENOUGH
    found: Vector = advanced_mia.compute_score_lira(
        target[: 2 * TESTED, None], inside, outside, option, not many, "mean"
    )
    return found


def _online(case: _Case) -> float:
    published = -_published_lira(case, case.target, "both")
    return float(np.abs(case.lira() - published).max())


def _offline(case: _Case) -> float:
    ours = case.lira()
    outside = case.stretched(~case.included)
    offset = advanced_mia.compute_score_offset(
        case.target[: 2 * TESTED, None], [], outside, "out", "mean"
    )
    peak = np.array([row.mean() for row in outside])
    squares = 2 * (
        _published_lira(case, peak, "out") - _published_lira(case, case.target, "out")
    )
    return float(np.abs(ours * np.abs(ours) - np.sign(offset) * squares).max())


def _dominance(case: _Case) -> float:
    """Return the largest difference of an RMIA score from PrivacyGuard's."""
    online = bool(case.included.any())
    target, reference = (1 / (1 + np.exp(-one)) for one in (case.target, case.reference))
    parts = np.split(np.arange(target.size), [TESTED, 2 * TESTED])
    frames = [
        _frame(target[rows], reference[:, rows], case.included[:, rows]) for rows in parts
    ]
    frames[2]["score_orig"] *= GAMMA
    attack = privacy_guard_rmia.RmiaAttack(
        *frames,
        row_aggregation=aggregation.AggregationType.NONE,
        num_reference_models=len(reference),
        alpha_coefficient=OFFLINE,
        online=online,
    )
    found, ours = attack.run_attack(), rmia(case.setting)
    return float(
        max(
            np.abs(ours.forget - found.df_train_user["score"]).max(),
            np.abs(ours.unseen - found.df_test_user["score"]).max(),
        )
    )


def _frame(target: Vector, reference: Matrix, included: Flags) -> Any:
    """Return the columns that PrivacyGuard reads, a line for each row."""
    columns: dict[str, Any] = {"user_id": np.arange(len(target)), "score_orig": target}
    for model, (answers, flags) in enumerate(zip(reference, included, strict=True)):
        columns |= {f"score_ref_{model}": answers, f"member_ref_{model}": flags}
    return pd.DataFrame(columns)
