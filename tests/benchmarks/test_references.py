"""The benchmark of reference models: its worlds, and what a model that forgot nothing shows."""

from typing import Any

import numpy as np
import pytest

from benchmarks import references
from workers.training.replay.models import train_file


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


def test_what_each_way_trains_on_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    untrained, _ = train_file(references.NETWORK, {}, references.TRAINING)
    seeds: list[int] = []

    def counted(_: Any, clients: Any, config: Any) -> tuple[bytes, int]:
        seeds.append(config.seed)
        return untrained, sum(len(own) for own in clients.values())

    monkeypatch.setattr(references, "train_file", counted)
    world = references.drawn(3)
    # Each of 500 scored rows is in two of four models, each of 300 retained ones in all.
    assert references.references(world, 4)[1] == 4 * 300 + 2 * 500
    assert set(seeds) == {references.TRAINING.seed}
    assert references.references(world, 4, references.HALVES)[1] == 2 * 300 + 2 * 500
    assert references.references(world, 4, references.OWN_SEEDS)[1] == 4 * 300 + 2 * 500
    assert seeds[-4:] == [0, 1, 2, 3]
