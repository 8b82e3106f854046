"""The bounds on matched pairs against the judge's own draws and powers."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

from lethe.pairs import RESERVED, least_pairs, most_pairs, share_of_alpha
from workers.errors import RefusedError
from workers.judge.inference.intervals import spent
from workers.judge.inference.sizes import auc_power, minimum_pairs
from workers.judge.samples.samples import match

RNG = np.random.default_rng(17)


def counts(forget: np.ndarray, pool: np.ndarray) -> list[tuple[int, int]]:
    erased, held = Counter(forget.tolist()), Counter(pool.tolist())
    return [(count, held[client]) for client, count in erased.items()]


@pytest.mark.parametrize("trial", range(60))
def test_no_draw_of_the_judge_has_more_pairs(trial: int) -> None:
    clients, labels = 1 + trial % 5, 1 + trial % 3
    forget = RNG.integers(clients, size=RNG.integers(1, 120))
    pool = RNG.integers(
        -(trial % 2), clients, size=RNG.integers(1, 120)
    )  # -1: of another client
    sides = [(side, RNG.integers(labels, size=len(side))) for side in (forget, pool)]
    try:
        found = match(sides[0], sides[1], trial.to_bytes(32, "big"), 0.5)
    except RefusedError:
        return
    others = len(found.others)
    assert len(found.forget) <= most_pairs(counts(forget, pool), len(pool), others)
    assert len(found.forget) <= most_pairs(counts(forget, pool), len(pool) + trial, 0)


def test_the_bound_is_reached_where_only_the_reserve_or_the_client_limits() -> None:
    one = np.zeros(100), np.zeros(100)
    assert len(match(one, one, bytes(32), 0.5).forget) == most_pairs([(100, 100)], 100, 0) == 80
    few = np.zeros(7), np.zeros(7)
    assert len(match(few, one, bytes(32), 0.5).forget) == most_pairs([(7, 100)], 100, 0) == 7


@pytest.mark.parametrize(
    ("clients", "pool", "others", "most"),
    [
        ([], 0, 50, 0),
        ([(320, 80)], 1000, 50, 80),  # a client of 400 records, a fifth held out
        ([(5, 9), (9, 5)], 1000, 50, 10),
        ([(400, 400)], 400, 0, 400 - 400 // RESERVED),
        ([(400, 400)], 400, 150, 250),
        ([(40, 40)], 40, 50, 0),
    ],
)
def test_most_pairs(clients: list[tuple[int, int]], pool: int, others: int, most: int) -> None:
    assert most_pairs(clients, pool, others) == most


@pytest.mark.parametrize(
    ("tau", "power", "judged"),
    list(product((0.02, 0.05, 0.1, 0.25), (0.5, 0.8, 0.999), (0, 1, 9, 10**6))),
)
def test_fewer_pairs_than_the_least_never_have_the_power(
    tau: float, power: float, judged: int
) -> None:
    level = share_of_alpha(0.05, judged) / 12
    least = least_pairs(tau, level, power)
    assert auc_power(least - 1, tau, level) < power
    assert auc_power(least, tau, level) >= power - 1e-9  # and none too many
    assert least <= minimum_pairs(tau, level, power)


def test_the_judge_spends_this_share() -> None:
    assert [spent(0.05, k) for k in range(20)] == [share_of_alpha(0.05, k) for k in range(20)]
    assert sum(share_of_alpha(0.05, k) for k in range(10**5)) == pytest.approx(0.05, abs=1e-6)
