"""Yeom's, and Song and Mittal's attacks beside those of TensorFlow Privacy, row by row.

The published code works on probabilities, ours on logits: answers are drawn that no softmax
rounds to 0 or 1, so that both are defined. Its attacks look for the best threshold on the
rows they attack, ours fix one beforehand on known rows: the known rows are put before both.
"""

from typing import Any

import numpy as np

from tests.interop.attacks.answers import CLASSES, side
from tests.interop.attacks.published import data_structures, threshold_attacks
from workers.judge.attacks.attack import Attack, Setting
from workers.judge.attacks.outputs import Outputs
from workers.judge.attacks.roc import auc
from workers.judge.attacks.song import (
    modified_entropy,
    song_confidence,
    song_modified_entropy,
)
from workers.judge.attacks.yeom import yeom

ROWS, GAIN = 600, 1.0
# Confidence falls where the loss rises: on rows of one class their attack by loss is ours.
SONG = {
    "confidence": (song_confidence, "THRESHOLD_ATTACK"),
    "modified entropy": (song_modified_entropy, "THRESHOLD_ENTROPY_ATTACK"),
}


def differences(rng: np.random.Generator) -> dict[str, float]:
    """Return the largest difference of each quantity, by what was compared."""
    forget, unseen, members, others = (side(rng, ROWS, gain) for gain in (GAIN, 0.0, GAIN, 0.0))
    setting = Setting(forget, unseen, members, others)
    tested = _published(forget, unseen)
    scores = yeom(setting)
    assert scores.threshold is not None
    losses = np.r_[tested.get_loss_train(), tested.get_loss_test()]
    entropies = np.r_[tested.get_entropy_train(), tested.get_entropy_test()]
    ours = np.r_[modified_entropy(forget), modified_entropy(unseen)]
    # The rule is the paper's, the mean loss of members; only the losses are published code.
    mean = float(_published(members, others).get_loss_train().mean())
    area = _run(tested, "THRESHOLD_ATTACK")[0].get_auc()
    found = {
        "Yeom, scores": float(np.abs(np.r_[scores.forget, scores.unseen] + losses).max()),
        "Yeom, threshold": abs(scores.threshold + mean),
        "Yeom, area": float(abs(auc(scores.forget, scores.unseen) - area)),
        "Song and Mittal, modified entropy": float(np.abs(ours - entropies).max()),
    }
    for name, (attack, kind) in SONG.items():
        found[f"Song and Mittal, {name}, area"] = _areas(attack, kind, setting)
        found[f"Song and Mittal, {name}, threshold"] = _advantages(attack, kind, setting)
    return {f"TensorFlow Privacy, {name}": value for name, value in found.items()}


def _areas(attack: Attack, kind: str, setting: Setting) -> float:
    """Return the largest difference of the area under the curve of a class."""
    scores, forget, unseen = attack(setting), setting.forget.labels, setting.unseen.labels
    ours = [
        auc(scores.forget[forget == label], scores.unseen[unseen == label])
        for label in range(CLASSES)
    ]
    results = _run(_published(setting.forget, setting.unseen), kind)[1:]
    return _apart(ours, [one.get_auc() for one in results])


def _advantages(attack: Attack, kind: str, setting: Setting) -> float:
    """Return by how much a class's threshold misses the best one on known rows."""
    members, others = setting.members, setting.others
    told, not_told = attack(Setting(members, others, members, others)).correct()
    ours = [
        told[members.labels == label].mean() + not_told[others.labels == label].mean() - 1
        for label in range(CLASSES)
    ]
    results = _run(_published(members, others), kind)[1:]
    return _apart(ours, [one.get_attacker_advantage() for one in results])


def _apart(ours: list[float], theirs: list[float]) -> float:
    return float(np.abs(np.array(ours) - theirs).max())


def _published(members: Outputs, others: Outputs) -> Any:
    """Return the same answers as the published attacks take them."""
    return data_structures.AttackInputData(
        logits_train=members.logits,
        logits_test=others.logits,
        labels_train=members.labels,
        labels_test=others.labels,
    )


def _run(of: Any, kind: str) -> list[Any]:
    """Return the published attack's results on all rows, then on those of each class."""
    slices = data_structures.SlicingSpec(entire_dataset=True, by_class=True)
    kinds = (data_structures.AttackType[kind],)
    found = list(threshold_attacks.run_attacks(of, slices, kinds).single_attack_results)
    assert len(found) == 1 + CLASSES
    return found
