"""What the catalogue names is implemented, and nothing else is offered."""

from typing import get_args

from lethe.catalogue import ATTACKS, NETWORK, RIDGE, Distance
from workers.judge.attacks import registry as attacks
from workers.judge.samples.distances import DISTANCES
from workers.methods.network import registry as network
from workers.methods.ridge import registry as ridge


def test_methods_are_those_that_are_implemented() -> None:
    assert set(network.METHODS) == set(NETWORK)
    assert set(ridge.known()) == set(RIDGE)


def test_attacks_and_distances_are_those_that_the_judge_has() -> None:
    assert set(attacks.ATTACKS) == set(ATTACKS)
    assert set(DISTANCES) == set(get_args(Distance))
