"""Cheats before the attacks: in a world with power none passes, without power nobody does."""

import numpy as np
import pytest
import torch

from benchmarks.soundness.empirical import Scene, honest_scene, scenes
from benchmarks.soundness.networks import accuracy, fitted
from benchmarks.soundness.providers import CHEATS, STORAGE
from benchmarks.soundness.updates import UPDATES, Provider
from benchmarks.soundness.worlds import WorldSetting, digits, make_world
from tests.redteam.small import SMALL
from workers.judge.base import Report
from workers.judge.samples.empirical import VERIFIER

torch.set_num_threads(1)

# Not here: who imitates unseen rows, and passes sometimes: test_imitation.py.
REFUSED_BY = {
    "no-op": "yeom:auc",
    "wrong client": "yeom:auc",
    "relabel": "yeom:auc",
    "noise": "yeom:auc",
    "last layer": "yeom:auc",
    "one class loud": "yeom:auc",
    "overfit one attack": "song-confidence:auc",
    "old version": "yeom:auc",
    "one ulp": "model-file",
    "forged evidence": "control:yeom",
    "dropped record": "retained-set",
    "swapped rows": "rows-before",
}


def provider_of(setting: WorldSetting) -> Provider:
    world = make_world(setting, 0)
    original = fitted(world, np.arange(setting.rows), 0)
    return Provider(world, original, np.random.default_rng(0))


@pytest.fixture(scope="module")
def powerful() -> tuple[Provider, dict[str, Scene]]:
    provider = provider_of(SMALL)
    updates = {name: update for name, update in UPDATES.items() if name in REFUSED_BY}
    return provider, scenes(provider, UPDATES["honest retrain"](provider), updates)


def verdict(scene: Scene) -> Report:
    return VERIFIER.verify(scene.claim(np.random.default_rng(1)))


def test_the_original_model_is_better_on_the_erased_rows(
    powerful: tuple[Provider, dict[str, Scene]],
) -> None:
    world, original = powerful[0].world, powerful[0].original
    gap = accuracy(original, world, world.erased) - accuracy(original, world, world.unseen)
    assert gap > 0.15


def test_all_are_tried(powerful: tuple[Provider, dict[str, Scene]]) -> None:
    assert set(powerful[1]) == {*REFUSED_BY, "honest retrain"}
    # Recovery forgets a little where it is long: tests/e2e/test_earned.py has it refuted.
    assert set(REFUSED_BY) == {*CHEATS, *STORAGE} - {"overfit all attacks", "recovery alone"}


@pytest.mark.parametrize("name", REFUSED_BY)
def test_a_cheat_is_refused(powerful: tuple[Provider, dict[str, Scene]], name: str) -> None:
    report = verdict(powerful[1][name])
    failed = [check.name for check in report.checks if not check.passed]
    assert REFUSED_BY[name] in failed
    assert report.result != "PASS"


def test_the_honest_retraining_is_accepted(
    powerful: tuple[Provider, dict[str, Scene]],
) -> None:
    assert verdict(powerful[1]["honest retrain"]).result == "PASS"


@pytest.mark.parametrize("update", ["honest retrain", "no-op"])
def test_without_power_there_is_no_verdict(update: str) -> None:
    provider = provider_of(digits())
    report = verdict(honest_scene(provider, UPDATES[update](provider)))
    failed = {check.name for check in report.checks if not check.passed}
    assert report.result == "INCONCLUSIVE"
    assert "control:yeom" in failed
    assert "samples" not in failed  # it is the model that cannot tell, not too small a sample
