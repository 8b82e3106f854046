"""KL between matrix-normal posteriors, against a dense normal and against sampling."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge.oracle import only, random_rows
from workers.arrays import Matrix
from workers.judge.ridge.claim import ClaimedStatistics, RidgeClaim
from workers.judge.ridge.posterior import (
    check_posterior,
    divergence,
    divergence_of_head,
    excess,
    least_eigenvalue,
)
from workers.judge.ridge.statistics import Recomputed, UnusableRowsError, recompute


def claim_of(
    d: int, c: int, penalty: float, noise: float, steps: tuple[int, ...]
) -> RidgeClaim:
    head = np.zeros((d, c))
    return RidgeClaim(d, c, steps, 16, penalty, "", head, head[:0, None], 0.0, noise=noise)


def normal(of: Recomputed, claim: RidgeClaim) -> tuple[Matrix, Matrix]:
    """Mean (d·c,) and covariance (d·c, d·c) of vec W, densely."""
    steps = np.diag(np.ldexp(1.0, np.array(claim.exponents)))
    inverse = np.linalg.inv(steps @ of.gram @ steps + claim.penalty * np.eye(len(steps)))
    mean: Matrix = (inverse @ steps @ of.moment).T.ravel()
    return mean, np.kron(np.eye(claim.classes), claim.noise * inverse)


def dense_kl(one: tuple[Matrix, Matrix], two: tuple[Matrix, Matrix]) -> float:
    precision = np.linalg.inv(two[1])
    gap = two[0] - one[0]
    logs = np.linalg.slogdet(two[1])[1] - np.linalg.slogdet(one[1])[1]
    return float(np.trace(precision @ one[1]) + gap @ precision @ gap - len(gap) + logs) / 2


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 5),
    st.integers(1, 4),
    st.floats(0.1, 10),
    st.floats(0.1, 10),
)
@settings(deadline=None)
def test_equals_the_dense_formula(
    seed: int, d: int, c: int, penalty: float, noise: float
) -> None:
    rng = np.random.default_rng(seed)
    claim = claim_of(d, c, penalty, noise, tuple(int(e) for e in rng.integers(-17, -12, d)))
    one, two = (recompute([random_rows(rng, n, d, c)], d, c, 16) for n in (12, 8))
    want = dense_kl(normal(one, claim), normal(two, claim))
    assert divergence(claim, one, two) == pytest.approx(want, rel=1e-8, abs=1e-10)
    assert divergence(claim, one, one) == 0.0


def test_agrees_with_sampling() -> None:
    rng = np.random.default_rng(3)
    claim = claim_of(3, 2, 0.5, 0.7, (-15, -14, -15))
    one, two = (recompute([random_rows(rng, n, 3, 2)], 3, 2, 16) for n in (20, 15))
    (mean, cov), (other, other_cov) = normal(one, claim), normal(two, claim)
    samples = rng.multivariate_normal(mean, cov, size=200_000)

    def log_density(at: Matrix, centre: Matrix, spread: Matrix) -> Matrix:
        gap = at - centre
        inner = np.einsum("ni,ij,nj->n", gap, np.linalg.inv(spread), gap)
        density: Matrix = -(inner + np.linalg.slogdet(spread)[1]) / 2
        return density

    ratios = log_density(samples, mean, cov) - log_density(samples, other, other_cov)
    error = 5 * ratios.std() / np.sqrt(len(ratios))
    assert abs(divergence(claim, one, two) - ratios.mean()) < error


@pytest.mark.parametrize("part", ["gram", "moment"])
def test_the_least_change_of_the_largest_statistics_is_not_zero(part: str) -> None:
    # One unit in 2^40: the dense formula would return rounding of either sign.
    rows = random_rows(np.random.default_rng(4), 5000, 4, 2)
    one = recompute([rows], 4, 2, 16)
    changed = getattr(one, part).copy()
    changed[0, 0] += 1
    two = replace(one, **{part: changed})
    claim = claim_of(4, 2, 1.0, 1.0, (-15,) * 4)
    forth, back = divergence(claim, one, two), divergence(claim, two, one)
    assert 0 < forth < 1e-12
    assert forth == pytest.approx(back, rel=1e-6)


@given(st.floats(-0.5, 0.5))
@settings(deadline=None)
def test_the_excess_keeps_its_digits(value: float) -> None:
    exact = Fraction(value)
    total = Fraction(0)
    for k in range(60, 1, -1):  # Horner, cut to 400 bits: x²(1/2 - x(1/3 - x(1/4 - …)))
        total = Fraction(round((Fraction(1, k) - exact * total) * 2**400), 2**400)
    want = float(exact**2 * total)
    # Its square may be subnormal, where float64 has no digits to keep.
    tiny = float(np.finfo(np.float64).tiny)
    assert float(excess(np.array([value]))[0]) == pytest.approx(want, rel=2e-9, abs=tiny)


@pytest.mark.parametrize(
    "change",
    [
        {"penalty": 0.0},
        {"penalty": -1.0},
        {"noise": 0.0},
        {"noise": float("inf")},
        {"exponents": (9999, 0)},
    ],
    ids=["no penalty", "negative", "no noise", "infinite", "steps"],
)
def test_what_has_no_posterior_is_refused(change: dict[str, float]) -> None:
    rng = np.random.default_rng(0)
    one, two = (recompute([random_rows(rng, n, 2, 2)], 2, 2, 16) for n in (5, 6))
    claim = replace(claim_of(2, 2, 1.0, 1.0, (0, 0)), **change)  # type: ignore[arg-type]
    with pytest.raises(UnusableRowsError), np.errstate(over="ignore", invalid="ignore"):
        divergence(claim, one, two)


def test_an_indefinite_gram_matrix_has_no_posterior() -> None:
    true = recompute([random_rows(np.random.default_rng(0), 5, 2, 2)], 2, 2, 16)
    claim = claim_of(2, 2, 1.0, 1.0, (0, 0))
    with pytest.raises(UnusableRowsError, match="no posterior"):
        divergence(claim, replace(true, gram=-true.gram), true)
    with pytest.raises(UnusableRowsError, match="no posterior"):
        divergence(claim, true, replace(true, gram=-true.gram))


@pytest.mark.parametrize("forgotten", [1, 3, 50])
def test_forgetting_widens_the_posterior(forgotten: int) -> None:
    rng = np.random.default_rng(forgotten)
    d = 20
    rows = random_rows(rng, 60, d, 2)
    before = recompute([rows], d, 2, 16)
    after = recompute([only(rows, range(forgotten, 60))], d, 2, 16)
    steps = tuple(int(e) for e in rng.integers(-18, -12, d))
    difference = before.gram - after.gram
    bound, refuted = least_eigenvalue(difference, steps)
    scale = np.ldexp(1.0, np.array(steps))
    matrix = difference * np.outer(scale, scale)
    assert not refuted
    assert -1e-11 * np.trace(matrix) < bound < 0
    # One unit less in one diagonal entry of a singular difference is seen, exactly.
    if forgotten < d:
        spoilt = difference.copy()
        spoilt[np.argmax(difference.diagonal()), :] = 0
        assert least_eigenvalue((spoilt + spoilt.T) // 2, steps)[1]


@pytest.mark.parametrize("off", [0.0, 1e-7, 0.008, 3.0])
def test_the_divergence_of_a_head_is_bounded(off: float) -> None:
    rng = np.random.default_rng(5)
    claim = claim_of(6, 3, 2.0, 0.7, (-15,) * 6)
    sums = recompute([random_rows(rng, 40, 6, 3)], 6, 3, 16)
    mean, covariance = normal(sums, claim)
    head = mean.reshape(3, 6).T * (1 + off * rng.standard_normal((6, 3)))
    true = dense_kl((head.T.ravel(), covariance), (mean, covariance))
    bound = float(divergence_of_head(replace(claim, head=head), sums))
    assert true - 1e-9 <= bound
    eigenvalues = np.linalg.eigvalsh(covariance[:6, :6])
    # ‖R‖²/λ against RᵀA⁻¹R: no further apart than the largest eigenvalue of A is from λ.
    assert bound <= true * 0.7 / (2.0 * eigenvalues.min()) * 1.01 + 1e-9


def test_a_head_beside_equal_sums_is_not_said_to_be_at_0_nats() -> None:
    rng = np.random.default_rng(6)
    rows = random_rows(rng, 40, 4, 2)
    sums = recompute([rows], 4, 2, 16)
    claim = claim_of(4, 2, 1.0, 1.0, (-15,) * 4)
    mean, _ = normal(sums, claim)
    claimed = ClaimedStatistics(sums.gram, sums.moment, sums.rows)
    near = replace(claim, statistics=claimed, head=mean.reshape(2, 4).T * 1.008)
    judgement = check_posterior(near, [rows], sums)
    assert judgement.check.interval is not None
    assert judgement.check.value.startswith(f"KL at most {judgement.check.interval[1]} nats")
    assert float(judgement.check.interval[1]) > 1e-6
    broken = replace(near, head=np.full((4, 2), np.nan))
    assert not check_posterior(broken, [rows], sums).check.passed


def test_without_claimed_statistics_there_is_nothing_to_judge() -> None:
    with pytest.raises(ValueError, match="no statistics"):
        check_posterior(claim_of(2, 2, 1.0, 1.0, (0, 0)), [], None)
