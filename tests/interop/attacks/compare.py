"""The verifier's attacks and intervals beside published implementations.

Run by check.sh, in an environment that has them and not the service. What is defined exactly
must agree to rounding:

- curves and logistic regression with scikit-learn; intervals and Holm with statsmodels;
- Yeom's losses, Song and Mittal's modified entropy, the areas and class thresholds of both,
  the log-odds and LiRA with TensorFlow Privacy (by_logits.py, by_references.py);
- RMIA with PrivacyGuard, whose code is after that of RMIA's authors (by_references.py).

A trained attacker is no formula: ours must find at least what the best of ART's finds on the
same rows, and nothing where there is nothing.

Not compared, because no package that installs from PyPI was found to have it: the rule that
Yeom's threshold is the mean loss (the losses are), RMIA by its authors (Privacy Meter on
PyPI is older), and what ours does with answers that a softmax rounds to 0 or 1. Nor RMIA
offline where some reference models knew a row: PrivacyGuard then leaves models out.
"""

import sys
from functools import partial

import numpy as np
from art.attacks.inference.membership_inference import MembershipInferenceBlackBox  # type: ignore[import-not-found]
from art.estimators.classification import BlackBoxClassifier  # type: ignore[import-not-found]
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score, roc_curve
from statsmodels.stats.multitest import multipletests  # type: ignore[import-not-found]
from statsmodels.stats.proportion import proportion_confint  # type: ignore[import-not-found]

from tests.interop.attacks import by_logits, by_references
from tests.interop.attacks.answers import CLASSES, side
from workers.judge.attacks.attack import Setting
from workers.judge.attacks.outputs import Outputs, log_softmax
from workers.judge.attacks.roc import auc, best_advantage, tpr_at_fpr
from workers.judge.attacks.shokri import PENALTY, fit_logistic, shokri
from workers.judge.inference.intervals import clopper_pearson, step_down

ROWS = 1000
NOISE = 0.05  # of a balanced accuracy on 1,000 rows a side: three standard errors


def curves(rng: np.random.Generator) -> dict[str, float]:
    """Return the largest differences from scikit-learn's ROC curves, ties included."""
    worst = {"auc": 0.0, "advantage": 0.0, "true positives at a rate": 0.0}
    for _ in range(50):
        members, others = rng.normal(0.4, 1, 200).round(1), rng.normal(0, 1, 300).round(1)
        truth = np.r_[np.ones(200), np.zeros(300)]
        scores = np.r_[members, others]
        false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
        apart = {
            "auc": abs(auc(members, others) - roc_auc_score(truth, scores)),
            "advantage": abs(best_advantage(members, others) - (true - false).max()),
            "true positives at a rate": max(
                abs(tpr_at_fpr(members, others, rate) - true[false <= rate + 1e-12].max())
                for rate in (0.001, 0.01, 0.1)
            ),
        }
        worst = {name: max(worst[name], float(apart[name])) for name in worst}
    return worst


def regression(rng: np.random.Generator) -> float:
    """Return the largest difference of a weight from scikit-learn's logistic regression."""
    features = rng.normal(size=(400, 4))
    truth = features[:, 0] + rng.normal(size=400) > 0.7
    ours = fit_logistic(features, truth)
    theirs = LogisticRegression(
        C=1 / (400 * PENALTY), class_weight="balanced", tol=1e-10, max_iter=10_000
    ).fit(features, truth)
    return float(np.abs(ours - np.r_[theirs.intercept_, theirs.coef_[0]]).max())


def intervals() -> float:
    """Return the largest difference from statsmodels' Clopper–Pearson intervals."""
    return max(
        float(np.abs(np.array(clopper_pearson(k, n, a)) - proportion_confint(k, n, a, "beta")).max())
        for n in (5, 299, 1000)
        for k in (1, n // 2, n - 1)
        for a in (0.05, 0.001)
    )  # fmt: skip


def rejected(value: float, level: float) -> bool:
    """Return whether a p-value is small enough."""
    return value <= level


def holm(rng: np.random.Generator) -> float:
    """Return how often Holm's procedure decides otherwise than statsmodels', of 500."""
    wrong = 0
    for _ in range(500):
        values = rng.uniform(size=7) ** 3
        ours = step_down([partial(rejected, value) for value in values], 0.05)
        theirs = list(multipletests(values, 0.05, "holm")[0])
        wrong += [level is not None for level in ours] != theirs
    return float(wrong)


def trained(rng: np.random.Generator, gain: float) -> tuple[float, float]:
    """Return the balanced accuracies of ours and of the best of ART's trained attackers."""
    forget, unseen, members, others = (side(rng, ROWS, g) for g in (gain, 0.0, gain, 0.0))

    def shares(of: Outputs) -> np.ndarray:
        return np.exp(log_softmax(of.logits))

    found = []
    for kind in ("lr", "rf", "gb"):
        model = BlackBoxClassifier(lambda rows: rows, (CLASSES,), CLASSES)
        attack = MembershipInferenceBlackBox(
            model, input_type="prediction", attack_model_type=kind
        )
        attack.fit(
            None, members.labels, None, others.labels, pred=shares(members), test_pred=shares(others)
        )  # fmt: skip
        first, second = (
            attack.infer(None, one.labels, pred=shares(one)).ravel() for one in (forget, unseen)
        )
        found.append(float(((first == 1).mean() + (second == 0).mean()) / 2))
    told, not_told = shokri(Setting(forget, unseen, members, others)).correct()
    return float((told.mean() + not_told.mean()) / 2), max(found)


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")


def main() -> int:
    """Print every comparison; return how many fail."""
    rng, wrong = np.random.default_rng(0), 0
    exact = {
        **{f"scikit-learn, {name}": (value, 1e-12) for name, value in curves(rng).items()},
        "scikit-learn, logistic regression": (regression(rng), 1e-6),
        "statsmodels, Clopper–Pearson": (intervals(), 1e-12),
        "statsmodels, Holm (decisions)": (holm(rng), 0.0),
    }
    for part in (by_logits, by_references):
        found = part.differences(np.random.default_rng(1))
        exact |= {name: (value, 1e-12) for name, value in found.items()}
    for name, (apart, allowed) in exact.items():
        wrong += not apart <= allowed
        say(f"{name}: {apart:.2g} apart, {allowed:g} allowed")
    for gain in (0.0, 0.7, 1.5, 3.0):
        ours, theirs = trained(rng, gain)
        held = ours >= theirs - NOISE if gain else abs(ours - 0.5) <= NOISE
        wrong += not held
        say(f"ART, trained on answers, gain {gain}: ours {ours:.3f}, theirs {theirs:.3f}")
    say("all agree" if not wrong else f"{wrong} do not agree")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
