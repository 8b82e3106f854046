"""The float64 solver, against least squares that never forms XᵀX."""

import numpy as np
import pytest

from tests.workers.methods.ridge import oracle
from workers.arrays import Rows
from workers.errors import PenaltyError
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.canonical_head import canonical_head
from workers.methods.ridge.ridge_system import (
    check_penalty,
    column_scales,
    factorise,
    not_below,
    solve_float,
)
from workers.methods.ridge.statistics.gram import accumulate


def test_the_float_head_is_close_to_a_refit_by_svd() -> None:
    rng = np.random.default_rng(8)
    for d in (1, 2, 3, 7, 40, 41):
        rows = oracle.random_rows(rng, 3 * d + 2, d, 3)
        config = RidgeConfig(d, 3, tuple(int(e) for e in rng.integers(-16, -9, d)), 16, 0.1)
        want = oracle.refit_by_svd(rows, config)
        got = solve_float(accumulate([rows], d, 3), config)
        assert np.linalg.norm(got - want) < 1e-9 * np.linalg.norm(want)


@pytest.mark.parametrize("d", [1, 2, 5, 6])
def test_the_packed_factor_solves_the_scaled_system(d: int) -> None:
    rows = oracle.random_rows(np.random.default_rng(d), 2 * d + 1, d, 2)
    config = RidgeConfig(d, 2, tuple(range(-8, d - 8)), 16, 0.3)
    statistics = accumulate([rows], d, 2)
    scale = np.ldexp(1.0, column_scales(statistics, config))
    penalty = 0.3 * 4.0 ** -np.array(config.exponents)
    matrix = scale[:, None] * (statistics.gram + np.diag(penalty)) * scale
    assert ((matrix.diagonal() >= 1 / 4) & (matrix.diagonal() < 4)).all()
    right = np.random.default_rng(0).normal(size=(d, 3))
    got = factorise(statistics, config).solve(right.copy())
    assert np.allclose(matrix @ got, right, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("penalty", [1e-300, 1e-30, 1e30, 1e300])
def test_extreme_penalties_and_steps_do_not_overflow(penalty: float) -> None:
    rows = oracle.random_rows(np.random.default_rng(0), 30, 3, 2)
    config = RidgeConfig(3, 2, (-160, 0, 160), 16, penalty)
    statistics = accumulate([rows], 3, 2)
    scale = column_scales(statistics, config)
    assert np.isfinite(factorise(statistics, config).factor).all()
    assert np.isfinite(np.ldexp(1.0, scale)).all()


@pytest.mark.parametrize("seed", range(8))
def test_a_checked_penalty_stands_every_removal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = 6
    rows = oracle.random_rows(rng, 12, d, 2)
    codes = rows.codes.copy()
    codes[:, 3] = codes[:, 4]  # removal must not be what makes it singular: it always was
    rows = Rows(codes, rows.labels)
    exponents = tuple(int(e) for e in rng.integers(-14, -8, d))
    statistics = accumulate([rows], d, 2)
    with pytest.raises(PenaltyError, match="at least") as refusal:
        check_penalty(statistics, RidgeConfig(d, 2, exponents, 16, 1e-30))
    enough = RidgeConfig(
        d, 2, exponents, 16, float(str(refusal.value).rsplit(" ", 1)[1]) * 1.01
    )
    check_penalty(statistics, enough)
    for kept in range(12):
        order = rng.permutation(12)[:kept]
        retained = oracle.only(rows, order.tolist())
        got = canonical_head(accumulate([retained], d, 2), enough)
        assert got.head.tobytes() == oracle.head_of(oracle.solve(retained, enough)).tobytes()


@pytest.mark.parametrize("exponent", range(-40, 60))
def test_a_penalty_in_three_digits_is_not_below_it(exponent: int) -> None:
    penalty = 2.0**exponent
    assert penalty <= float(not_below(penalty)) <= penalty * 1.02
