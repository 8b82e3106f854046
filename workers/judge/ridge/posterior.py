"""Check 5: the posterior after unlearning is that of training on the retained rows alone.

Ridge is the mean of a Bayesian regression: for noise of variance σ² and the prior N(0, σ²/λ),
the weights are matrix-normal with mean W* = (G + λI)⁻¹C, row covariance σ²(G + λI)⁻¹ and
independent columns. The posteriors of claimed (1) and retained (0) statistics differ, with A =
G + λI, by

    KL(1 ‖ 0) = c/2·(tr(A₀A₁⁻¹) - d - ln det(A₀A₁⁻¹)) + tr(ΔᵀA₀Δ)/(2σ²),   Δ = W₀* - W₁*

nats: 0 for equal statistics, which are compared bit by bit.

The published head W need not be W*. The posterior with mean W differs from that of the retained
rows by tr(ΔᵀAΔ)/(2σ²), Δ = W - W*. With the residual R = AW - C = AΔ, and μ a lower bound of
A's eigenvalues, that is tr(RᵀA⁻¹R)/(2σ²) <= ‖R‖²/(2μσ²) = μb²/(2σ²), where b = ‖R‖/μ is the
proven bound on ‖Δ‖.

Forgetting may only widen the posterior: G before - G after is the Gram matrix of the forgotten
rows, hence positive semidefinite, and covariance after ⪰ covariance before.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from lethe.catalogue import CHECKS
from workers.arrays import IntMatrix, Matrix, Rows
from workers.blas_threads import threads_for
from workers.judge.base import Judgement
from workers.judge.checks import judged
from workers.judge.ridge.chain import FURTHER, Judging
from workers.judge.ridge.claim import ClaimedStatistics, RidgeClaim
from workers.judge.ridge.freivalds import malformed
from workers.judge.ridge.head import convexity, decimal_above, proven_bound
from workers.judge.ridge.statistics import Recomputed, UnusableRowsError, digest_of, recompute

SPEC = CHECKS["posterior"]
LARGEST = 2**62  # the difference of two such integers fits int64
SERIES_BELOW = 1e-3  # |μ| from which μ - log(1 + μ) cancels less than the series truncates
UNIT = 2.0**-53


@FURTHER.check("posterior")
def check_claimed_posterior(judging: Judging) -> list[Judgement]:
    """Judge the posterior if the claim contains statistics."""
    claim, found = judging.claim, judging.statistics
    if claim.ridge.statistics is None:
        return []
    if (claim.messages is not None or claim.masked is not None) and found is None:
        return [judged(SPEC, "the messages cannot be summed", passed=False)]
    # Only if check 1 verified nothing: reading the rows again is expensive.
    rows = () if found is not None else (block.rows for block in claim.rows)
    return [check_posterior(claim.ridge, rows, found)]


def check_posterior(
    claim: RidgeClaim, rows: Iterable[Rows], verified: Recomputed | None
) -> Judgement:
    """Judge the posterior of the claimed statistics. verified: the statistics from check 1.

    Without those the rows are summed after all, so that a refusal can state the distance.
    """
    if claim.statistics is None:
        raise ValueError("no statistics to compare")
    problem = malformed(claim.statistics, claim.dimension, claim.classes)
    if problem is not None:
        return judged(SPEC, problem, passed=False)
    try:
        if verified is None:
            verified = recompute(rows, claim.dimension, claim.classes, claim.bits)
        # Overflow is detected in the results below.
        with np.errstate(over="ignore", invalid="ignore"):
            nats = divergence(claim, claim.statistics, verified)
            widened = _widening(claim, claim.statistics)
            of_head = decimal_above(divergence_of_head(claim, verified))
    except UnusableRowsError as reason:
        return judged(SPEC, str(reason), passed=False)
    if nats != 0 or claim.statistics.rows != verified.rows:
        value = f"KL {nats:.6e} nats" if nats else "another number of rows"
        return judged(SPEC, value, passed=False)
    value = f"KL at most {of_head} nats, and 0 between the sums; {widened}"
    return judged(SPEC, value, passed=True, interval=("0", of_head))


def divergence_of_head(claim: RidgeClaim, verified: Recomputed) -> Fraction:
    """Return an upper bound of the KL of the published head's posterior, in nats.

    It is relative to the verified statistics. If clients sent sketches, these are the
    statistics of the sketches: `head-certified` bounds how far the rows may be from them.

    Raises UnusableRowsError if the head is not a (d, c) matrix of finite numbers.
    """
    head = claim.head
    if head.shape != verified.moment.shape or not np.isfinite(head).all():
        raise UnusableRowsError("the head is not a matrix of finite numbers of its size")
    bound = proven_bound(head.astype(np.float64), claim, verified)
    return convexity(claim, verified) * bound**2 / (2 * Fraction(claim.noise))


def divergence(
    claim: RidgeClaim,
    first: ClaimedStatistics | Recomputed,
    second: ClaimedStatistics | Recomputed,
) -> float:
    """Return KL(posterior of first ‖ posterior of second) in nats.

    0.0 if and only if G and C are equal (a positive number that underflows counts as the least
    float). Raises UnusableRowsError if a side has no posterior.
    """
    if not (0 < claim.penalty < np.inf and 0 < claim.noise < np.inf):
        raise UnusableRowsError("the penalty or the noise is not a positive number")
    # Differences as integers: near-equal statistics lose no digit to cancellation.
    gram = _difference(second.gram, first.gram)
    moment = _difference(second.moment, first.moment)
    if not gram.any() and not moment.any():
        return 0.0
    steps = np.array(claim.exponents, dtype=np.int64)
    change = _scaled(gram, steps)
    one = _scaled(first.gram, steps) + claim.penalty * np.eye(len(steps))
    two = _scaled(second.gram, steps) + claim.penalty * np.eye(len(steps))
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        raise UnusableRowsError("the registered steps are out of range")
    factor_one, factor_two = _cholesky(one), _cholesky(two)
    half = solve_triangular(factor_one, change, lower=True)
    relative = solve_triangular(factor_one, half.T, lower=True)
    # A₀A₁⁻¹ has the eigenvalues 1 + μ; G₀ is a Gram matrix, so they are positive.
    mean = cho_solve((factor_one, True), np.ldexp(first.moment.astype(float), steps[:, None]))
    gap = np.ldexp(moment.astype(float), steps[:, None]) - change @ mean  # A₀Δ
    shift = solve_triangular(factor_two, gap, lower=True)
    spread = excess(np.linalg.eigvalsh((relative + relative.T) / 2)).sum()
    nats = moment.shape[1] / 2 * spread + float((shift * shift).sum()) / (2 * claim.noise)
    if not np.isfinite(nats):
        raise UnusableRowsError("the divergence is beyond float64")
    return float(max(nats, np.finfo(np.float64).tiny))


def least_eigenvalue(difference: IntMatrix, exponents: Sequence[int]) -> tuple[float, bool]:
    """Return (bound, refuted) for S D S, D (d, d) symmetric integers, S = diag(2^e).

    Every eigenvalue is at least `bound` <= 0, by a Cholesky factorisation that succeeds on
    a matrix shifted by more than all rounding (Rump 2006); refuted: some integer vector v
    has vᵀDv < 0, in exact arithmetic. Raises UnusableRowsError if neither can be shown.
    """
    steps = np.array(exponents, dtype=np.int64)
    matrix = _scaled(difference, steps)
    if not np.isfinite(matrix).all():
        raise UnusableRowsError("the registered steps are out of range")
    d = len(matrix)
    # γ_(d+1)·trace for Cholesky, u·‖D‖_F <= u·Σ|D_ij| for the conversion; doubled.
    rounding = 4 * (d + 4) * UNIT * float(np.abs(matrix.diagonal()).sum())
    rounding += 4 * UNIT * float(np.abs(matrix).sum()) + float(np.finfo(np.float64).tiny)
    try:
        with threads_for(d**3 // 3):
            np.linalg.cholesky(matrix + rounding * np.eye(d))
    except np.linalg.LinAlgError:
        direction = np.linalg.eigh(matrix)[1][:, 0]
        vector = np.empty(d, dtype=object)
        # In D's own coordinates, as rationals: v = S·direction.
        vector[:] = [
            Fraction(float(x)) * Fraction(2) ** int(e)
            for x, e in zip(direction, steps, strict=True)
        ]
        if vector @ difference.astype(object) @ vector < 0:
            return -np.inf, True
        raise UnusableRowsError("the change of the Gram matrix is too close to call") from None
    return -2 * rounding, False


def check_definite(gram: IntMatrix, exponents: Sequence[int], penalty: float) -> None:
    """Check that G of unseen rows, in feature units, has no eigenvalue below -λ/2.

    That of rows has none below 0, but float64 cannot tell 0 from some -2^-49·d of the trace.
    A registration takes no λ that is below twice that. Raises UnusableRowsError.
    """
    bound, refuted = least_eigenvalue(gram, exponents)
    if refuted:
        raise UnusableRowsError("the sum is not that of any rows: G has a negative eigenvalue")
    if not penalty >= -2 * bound:
        raise UnusableRowsError("the penalty is too small to tell whether the sum is of rows")


def _widening(claim: RidgeClaim, after: ClaimedStatistics) -> str:
    """Return how covariance after and before compare. Raises UnusableRowsError if it shrank."""
    if claim.before is None:
        return "the covariance before was not compared"
    problem = malformed(claim.before, claim.dimension, claim.classes)
    if problem is not None:
        raise UnusableRowsError(f"before: {problem}")
    before = Recomputed(claim.before.gram, claim.before.moment, claim.before.rows)
    digest = digest_of(before, claim.exponents, claim.bits, claim.penalty)
    if digest != claim.before_digest:
        raise UnusableRowsError("the statistics before are not those of their published digest")
    if claim.before.rows < after.rows:
        raise UnusableRowsError("there were fewer rows before than after")
    difference = _difference(claim.before.gram, after.gram)
    bound, refuted = least_eigenvalue(difference, claim.exponents)
    if refuted:
        raise UnusableRowsError("the covariance shrank: G before - G after is indefinite")
    return f"eigenvalues of G before - G after are at least {bound:.3e}"


def _difference(left: IntMatrix, right: IntMatrix) -> IntMatrix:
    for side in (left, right):
        if max(int(side.max()), -int(side.min())) >= LARGEST:
            raise UnusableRowsError("the statistics are too large to compare")
    return left - right


def _scaled(integers: IntMatrix, steps: IntMatrix) -> Matrix:
    scaled: Matrix = np.ldexp(integers.astype(np.float64), steps[:, None] + steps[None, :])
    return scaled


def _cholesky(matrix: Matrix) -> Matrix:
    try:
        factor: Matrix = cho_factor(matrix, lower=True)[0]
    except np.linalg.LinAlgError:
        raise UnusableRowsError("the statistics have no posterior: not definite") from None
    return factor


def excess(values: Matrix) -> Matrix:
    """Return μ - log(1 + μ) >= 0 to full relative accuracy."""
    if values.size and values.min() <= -1:
        raise UnusableRowsError("the statistics have no posterior: not definite")
    small = np.where(np.abs(values) < SERIES_BELOW, values, 0.0)
    series = np.polynomial.polynomial.polyval(small, [(-1) ** k / k for k in range(2, 9)])
    near: Matrix = small * small * series
    return np.where(np.abs(values) < SERIES_BELOW, near, values - np.log1p(values))
