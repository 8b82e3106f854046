"""Each attack on cases computed by hand, or from its paper's formula."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
from scipy import optimize, stats

from workers.errors import RefusedError
from workers.judge.attacks.attack import References, Setting, best_threshold
from workers.judge.attacks.lira import ENOUGH as MANY
from workers.judge.attacks.lira import likelihood_ratio, lira
from workers.judge.attacks.outputs import Outputs, log_odds, losses
from workers.judge.attacks.registry import ATTACKS
from workers.judge.attacks.rmia import dominance, expected, rmia
from workers.judge.attacks.roc import auc
from workers.judge.attacks.shokri import PENALTY, features, fit_logistic, shokri
from workers.judge.attacks.song import ENOUGH, modified_entropy, song_confidence
from workers.judge.attacks.yeom import yeom

rng = np.random.default_rng(11)


def probabilities(*rows: list[float], labels: list[int]) -> Outputs:
    return Outputs(np.log(np.array(rows)), np.array(labels))


def outputs(rows: int, gain: float, classes: int = 4) -> Outputs:
    labels = rng.integers(0, classes, rows)
    return Outputs(rng.normal(size=(rows, classes)) + gain * np.eye(classes)[labels], labels)


SETTING = Setting(outputs(80, 3.0), outputs(90, 0.5), outputs(200, 3.0), outputs(150, 0.5))


def test_yeoms_threshold_is_the_mean_loss_of_known_members() -> None:
    members = probabilities([0.5, 0.5], [0.25, 0.75], labels=[0, 0])  # ln 2, ln 4
    setting = replace(
        SETTING,
        forget=probabilities([0.4, 0.6], [0.3, 0.7], labels=[0, 0]),
        unseen=probabilities([0.9, 0.1], [0.2, 0.8], labels=[0, 0]),
        members=members,
    )
    scores = yeom(setting)
    assert scores.threshold == pytest.approx(-1.5 * log(2))  # p_y = 0.354
    assert [list(side) for side in scores.correct()] == [[True, False], [False, True]]
    assert scores.forget == pytest.approx([log(0.4), log(0.3)])


def test_modified_entropy_is_equation_8() -> None:
    of = probabilities([0.7, 0.2, 0.1], [0.7, 0.2, 0.1], labels=[0, 1])
    right = -0.3 * log(0.7) - 0.2 * log(0.8) - 0.1 * log(0.9)
    wrong = -0.8 * log(0.2) - 0.7 * log(0.3) - 0.1 * log(0.9)
    assert modified_entropy(of) == pytest.approx([right, wrong])


def test_modified_entropy_at_the_ends() -> None:
    of = Outputs(np.array([[2000.0, 0.0], [2000.0, 0.0], [0.0, 0.0]]), np.array([0, 1, 0]))
    sure, wrong, even = modified_entropy(of)
    assert sure == 0.0
    assert wrong >= 4000.0 - 1e-9  # both terms: log p_y and log(1 - p_other) are -2000
    assert even == pytest.approx(log(2))


def test_songs_thresholds_are_by_class() -> None:
    # In class 1 the model is more confident on all rows, so one threshold for both classes
    # fails.
    def shifted(gain: float, rows: int = 2 * ENOUGH) -> Outputs:
        labels = np.arange(2 * rows) % 2
        own = gain + 10.0 * labels + np.linspace(0, 0.9, 2 * rows)
        return Outputs(np.where(np.eye(2)[labels] == 1, own[:, None], 0.0), labels)

    setting = Setting(shifted(1.0), shifted(0.0), shifted(1.0), shifted(0.0))
    scores = song_confidence(setting)
    assert all(side.all() for side in scores.correct())
    assert auc(scores.forget, scores.unseen) == 1.0
    assert auc(log_odds(setting.forget), log_odds(setting.unseen)) < 0.8
    few = song_confidence(replace(setting, others=shifted(0.0, ENOUGH - 1)))
    assert not all(side.all() for side in few.correct())  # too few for one each


def test_the_best_threshold_by_hand() -> None:
    assert best_threshold(np.array([3.0, 5.0, 9.0]), np.array([1.0, 2.0, 4.0])) == 2.5
    assert best_threshold(np.array([0.0]), np.array([1.0])) == 1.0  # no score is above
    assert best_threshold(np.zeros(4), np.zeros(3)) == 0.0
    members, others = rng.normal(0.5, 1, 50), rng.normal(0, 1, 40)
    found = best_threshold(members, others)
    worth = [(members > t).mean() - (others > t).mean() for t in (*members, *others, found)]
    assert worth[-1] == max(worth)


def test_the_trained_attacker_is_at_the_minimum() -> None:
    rows = rng.normal(size=(120, 3))
    belongs = rows[:, 0] + rng.normal(size=120) > 0.8
    weights = np.where(belongs, 0.5 / belongs.sum(), 0.5 / (~belongs).sum())

    def objective(at: np.ndarray) -> float:
        logits = at[0] + rows @ at[1:]
        logs = np.logaddexp(0, np.where(belongs, -logits, logits))
        return float(weights @ logs + PENALTY / 2 * at[1:] @ at[1:])

    want = optimize.minimize(objective, np.zeros(4), tol=1e-12).x
    assert fit_logistic(rows, belongs) == pytest.approx(want, abs=1e-4)


def test_the_trained_attacker_survives_sides_that_can_be_separated() -> None:
    rows = np.r_[np.zeros((20, 1)), np.ones((20, 1)) * 1e3]
    weights = fit_logistic(rows / 500, np.arange(40) >= 20)
    assert np.isfinite(weights).all()
    assert weights[1] > 0
    with pytest.raises(RefusedError):
        fit_logistic(rows, np.ones(40, dtype=np.bool_))


def test_the_trained_attacker_finds_members() -> None:
    scores = shokri(SETTING)
    assert auc(scores.forget, scores.unseen) > 0.85
    assert sum(side.mean() for side in scores.correct()) / 2 > 0.75
    assert np.abs(features(Outputs(np.array([[1e308, -1e308]]), np.array([1])))).max() <= 50


def test_lira_online_and_offline_by_scipy() -> None:
    target = np.array([1.0, 3.0])
    reference = np.array([[0.0, 1.0], [2.0, 1.5], [4.0, 3.0], [5.0, 3.5]])
    included = np.array([[False] * 2, [False] * 2, [True] * 2, [True] * 2])
    out = np.sqrt((2 * 1.0 + 2 * 0.25**2) / 2)  # one variance for all rows
    within = np.sqrt((2 * 0.5**2 + 2 * 0.25**2) / 2)
    want = stats.norm.logpdf(target, [4.5, 3.25], within)
    want -= stats.norm.logpdf(target, [1.0, 1.25], out)
    assert likelihood_ratio(target, reference, included, online=True) == pytest.approx(want)
    offline = (target - [1.0, 1.25]) / out
    found = likelihood_ratio(target, reference, included & False, online=False)
    assert found == pytest.approx(
        (target - reference.mean(axis=0))
        / np.sqrt(((reference - reference.mean(axis=0)) ** 2).sum() / 6)
    )
    assert likelihood_ratio(target, reference, included, online=False) == pytest.approx(offline)


def test_lira_with_many_models_has_a_variance_for_each_row() -> None:
    reference = np.random.default_rng(6).normal(size=(2 * MANY, 3)) * [1.0, 2.0, 5.0]
    included = np.repeat([[True], [False]], MANY, axis=0).repeat(3, axis=1)
    target = np.array([0.5, 1.0, -2.0])
    sides = reference[:MANY], reference[MANY:]
    logs = [stats.norm.logpdf(target, x.mean(axis=0), x.std(axis=0, ddof=1)) for x in sides]
    found = likelihood_ratio(target, reference, included, online=True)
    assert found == pytest.approx(logs[0] - logs[1])


def test_rmia_by_its_definition() -> None:
    reference, included = rng.uniform(size=(6, 9)), np.arange(54).reshape(6, 9) % 2 == 0
    for x in range(9):
        inside, outside = reference[included[:, x], x], reference[~included[:, x], x]
        want = (inside.mean() + outside.mean()) / 2
        assert expected(reference, included)[x] == pytest.approx(want)
    offline = expected(reference, np.zeros((6, 9), dtype=np.bool_))
    assert offline == pytest.approx((1.3 * reference.mean(axis=0) + 0.7) / 2)
    ratios, population = rng.uniform(size=5), rng.uniform(size=40)
    want_shares = [(ratio / population >= 2.0).mean() for ratio in ratios]
    assert dominance(ratios, population) == pytest.approx(want_shares)


@pytest.mark.parametrize("attack", [lira, rmia])
@pytest.mark.parametrize("online", [True, False])
def test_attacks_by_reference_find_members_and_need_references(
    attack: type, online: bool
) -> None:
    with pytest.raises(RefusedError, match="reference"):
        attack(SETTING)
    # Rows differ in difficulty, which only reference models can correct for.
    rng = np.random.default_rng(5)
    sides = [SETTING.forget, SETTING.unseen, SETTING.others]
    hard = [rng.normal(-2, 3, len(side)) for side in sides]
    parts = [
        Outputs(side.logits + np.eye(4)[side.labels] * shift[:, None], side.labels)
        for side, shift in zip(sides, hard, strict=True)
    ]
    size = sum(map(len, parts))
    included = (np.arange(10)[:, None] + np.arange(size)) % 2 == 0
    if not online:
        included[:] = False
    level = np.concatenate(hard) + 2.5 * included
    odds = level + rng.normal(0, 1, (10, size))
    setting = replace(
        SETTING,
        forget=parts[0],
        unseen=parts[1],
        others=parts[2],
        references=References(odds, included),
    )
    scores = attack(setting)
    assert scores.threshold == (0.0 if online and attack is lira else None)
    by_loss = auc(-losses(parts[0]), -losses(parts[1]))
    assert auc(scores.forget, scores.unseen) > by_loss + 0.02


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_no_attack_trips_over_extremes(name: str) -> None:
    top = np.finfo(np.float64).max
    for logits in (
        np.zeros((40, 3)),
        np.where(np.eye(3)[np.arange(40) % 3] == 1, top, -top),
        np.where(np.eye(3)[np.arange(40) % 2] == 1, top, -top),
        np.full((40, 3), 1e-320),
    ):
        of = Outputs(logits, np.arange(40) % 3)
        references = References(
            np.zeros((4, 120)), np.repeat([[True], [False]] * 2, 120, axis=1)
        )
        scores = ATTACKS[name](Setting(of, of, of, of, references))
        assert not np.isnan(scores.forget).any()
        assert not np.isnan(scores.unseen).any()
        assert auc(scores.forget, scores.unseen) == 0.5
