"""The benchmark of reference models: its worlds, and what a model that forgot nothing shows."""

import numpy as np
import pytest

from benchmarks import references


def test_a_world_has_the_rows_that_it_says_and_nothing_is_both_scored_and_retained() -> None:
    world = references.drawn(3)
    places = np.concatenate([own.places for own in world.scored.values()])
    assert sorted(places.tolist()) == list(range(500))
    assert sum(len(own) for own in world.clients().values()) == references.RETAINED
    assert sum(len(own) for own in world.before.values()) == 480
    for own in world.scored.values():
        assert own.data.targets.tolist() == world.labels[1][own.places].tolist()
    seen = np.concatenate([own.inputs for own in world.before.values()])
    forget = [own.data.inputs[own.places < references.FORGET] for own in world.scored.values()]
    # Of the scored rows the model before knows those that are to be forgotten.
    assert {row.tobytes() for part in forget for row in part.numpy()} <= {
        row.tobytes() for row in seen
    }


def test_what_is_left_is_found_and_each_model_costs_what_its_rows_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(references, "MODELS", (4,))
    monkeypatch.setattr(references, "LEFT", (0.0, 1.0))
    found: references.Auc = {}
    operations, _ = references.measure(0, found)[4]
    # 300 rows and half of 500 others, four times.
    assert operations == pytest.approx(4 * 550 / 300, rel=0.05)
    for name in ("lira, 4 models", "rmia, 4 models", "yeom"):
        assert found[name, 1.0][0] > found[name, 0.0][0] + 0.08
        assert abs(found[name, 0.0][0] - 0.5) < 0.1
