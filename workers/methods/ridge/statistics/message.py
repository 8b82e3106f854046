"""What a client sends in place of its rows: their statistics, and how many of each label.

A message is exact, so that learning and forgetting it is adding and subtracting integers,
with the same bits as if the server had held the rows. It proves nothing: a server can only
refuse statistics that no rows can have. Most forgeries, wrong masks and corrupted bytes are not
the sums of any rows. For codes q (n, d) and one-hot targets Y (n, c), [q Y]ᵀ[q Y] is positive
semidefinite; every |q_ij| is at most q_max; and since x² and x have one parity, so have G_jj
and the sum of row j of C.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf, nextafter

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf

from workers.arrays import IntMatrix, Matrix, Rows
from workers.blas_threads import threads_for
from workers.errors import ExactnessError, InfeasibleRemovalError, RefusedError
from workers.methods.ridge.statistics.factor import (
    check_factor,
    check_form,
    check_own_factor,
    gram_of,
    is_factor,
    triangle,
)
from workers.methods.ridge.statistics.gram import RidgeStatistics, accumulate, check_bounds
from workers.methods.ridge.statistics.quantiser import largest_code

Counts = NDArray[np.int64]

UNIT = 2.0**-53
PANEL = 128
SLACK = 1 + 2.0**-48  # of a comparison of squares in float64


def find_fault(
    gram: IntMatrix,
    moment: IntMatrix,
    rows: int,
    counts: Counts | None = None,
    *,
    bits: int,
    residual: float = 0.0,
) -> str | None:
    """Return why no `rows` rows can have these statistics, or None if they may.

    gram (d, d), moment (d, c), counts (c,) >= 0 int64; without counts each label may be on
    all rows. residual: rows whose Gram matrix is within it, in the spectral norm, suffice.
    O((d + c)³/3) and one float64 matrix of d + c columns. Real rows are never at fault.
    """
    q_max = largest_code(bits)
    if counts is None:
        counts = np.full(moment.shape[1], rows, dtype=np.int64)
    square = rows * q_max**2
    diagonal = gram.diagonal()
    if not (gram == gram.T).all():
        return "the Gram matrix is not symmetric"
    if diagonal.min() < 0:
        return "a diagonal entry of the Gram matrix is negative"
    if _largest(gram) > square + residual:
        return f"an entry of the Gram matrix exceeds {rows} squares of {bits}-bit codes"
    if (moment.max(axis=0) > counts * q_max).any() or (
        moment.min(axis=0) < -counts * q_max
    ).any():
        return "an entry of the moment exceeds the codes of that label's rows"
    reach = (diagonal + residual)[:, None] * counts.astype(np.float64)
    if (moment.astype(np.float64) ** 2 > reach * SLACK).any():
        return "the moment and the Gram matrix break the Cauchy-Schwarz inequality"
    if residual == 0:
        if gram[diagonal == 0].any():
            return "a column is zero on the diagonal of the Gram matrix but not beside it"
        if ((diagonal - moment.sum(axis=1)) & 1).any():
            return "a column's squares and its codes sum to numbers of different parity"
    if not semidefinite(gram, moment, counts, residual):
        return "the Gram matrix of codes and targets is not positive semidefinite"
    return None


def semidefinite(
    gram: IntMatrix, moment: IntMatrix, counts: Counts, residual: float = 0.0
) -> bool:
    """Whether J = [[G + residual·I, C], [Cᵀ, diag(counts)]] is positive semidefinite.

    With S the powers of two that take J's diagonal to [1/4, 1), and t = `tolerance`: True if
    no eigenvalue of SJS is negative, False if one is below -2t. In between it may be either:
    rows may weigh that much less than claimed in some direction, relative to the columns in
    it. 2t is 5e-11 at d + c = 250 and below 5e-8 at 10,000.
    """
    d = len(gram)
    diagonal = np.concatenate([gram.diagonal() + residual, counts.astype(np.float64)])
    scales = -((np.frexp(diagonal)[1] + 1) // 2)
    powers = np.where(diagonal > 0, np.ldexp(1.0, scales), 1.0)
    joint = np.zeros((len(powers), len(powers)))
    for i in range(0, d, PANEL):
        part = slice(i, min(i + PANEL, d))
        np.multiply(gram[part, i:], powers[i:d], out=joint[part, i:d])
        np.multiply(moment[part], powers[d:], out=joint[part, d:])
        joint[part] *= powers[part, None]
    scaled = diagonal * powers**2
    np.fill_diagonal(joint, scaled + tolerance(scaled))
    with threads_for(len(joint) ** 3 // 3):
        # The upper triangle of `joint` is the lower one of LAPACK's columns.
        _, info = dpotrf(joint.T, lower=True, clean=False, overwrite_a=True)
    return bool(info == 0)


def tolerance(diagonal: Matrix) -> float:
    """Return t such that Cholesky decides on A + tI for A with this diagonal.

    It runs to completion if A + tI has no eigenvalue below Δ = Σ γ_(m+1)·a_jj, and if it
    does, none is below -Δ (Rump 2006, "Verification of positive definiteness"). Rounding
    the integers to float64 moves eigenvalues by 2^-53·‖A‖_F <= 2^-53·trace. t is twice both.
    """
    m = len(diagonal)
    return 4 * (m + 4) * UNIT * float(diagonal.sum() + m * UNIT)


def _largest(values: IntMatrix) -> int:
    """Return max |value| as an integer that cannot overflow."""
    return max(int(values.max()), -int(values.min()))


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """The statistics of a batch, in code units. The arrays are read-only.

    counts (c,) int64: rows of each label. factor (k, d) float64, upper trapezoidal, or None:
    R with RᵀR = G up to less than 1/2 in every entry, a speed-up that no result relies on.
    residual >= 0: ‖G_rows - G‖₂ in squared code units at most, attested by the client; 0
    except for sketches.
    """

    statistics: RidgeStatistics
    counts: NDArray[np.int64]
    factor: Matrix | None = None
    residual: float = 0.0

    def __post_init__(self) -> None:
        self.counts.setflags(write=False)
        if self.factor is not None:
            self.factor.setflags(write=False)

    def __len__(self) -> int:
        return self.statistics.rows


Batch = Rows | Message


class ImplausibleMessageError(RefusedError):
    """A message that no rows can have. The error names the broken condition, but no number."""


def summarise(rows: Rows, dimension: int, classes: int, *, bits: int) -> Message:
    """Return the exact message of some rows. Raises as `accumulate`."""
    statistics = accumulate([rows], dimension, classes, bits=bits)
    return Message(statistics, np.bincount(rows.labels, minlength=classes).astype(np.int64))


def with_factor(message: Message, rows: Rows) -> Message:
    """Return the message of these rows with the triangle of their thin QR factorisation.

    Every evaluation of the triangle gives back G: this is checked before it is sent. Raises
    ExactnessError, with the remedy, if float64 cannot hold it; RefusedError for other rows.
    """
    factor = triangle([rows.codes.astype(np.float64)], message.statistics.dimension)
    check_form(factor, message.statistics.dimension, message.statistics.rows)
    check_own_factor(factor, message.statistics.gram)
    return replace(message, factor=factor)


def from_factor(
    factor: Matrix, moment: IntMatrix, counts: NDArray[np.int64], *, bits: int
) -> Message:
    """Return the message whose Gram matrix is the integers nearest to RᵀR, for R = factor.

    Raises RefusedError for a factor of another form or of no integers, ExactnessError for one
    too large. `check_message` checks the other conditions.
    """
    rows = int(counts.sum())
    check_bounds(max(rows, 0), bits)
    check_form(factor, len(moment), rows)
    statistics = RidgeStatistics(gram_of(factor), moment, rows)
    return Message(statistics, counts, factor)


def check_message(message: Message, *, bits: int) -> None:
    """Raise RefusedError unless rows might exist that have this message.

    ExactnessError if there are too many of them, ImplausibleMessageError for the conditions
    of `find_fault`, RefusedError for another shape or a factor that is not of this G.
    """
    check_plausible(message, bits=bits)
    if message.factor is not None:
        check_form(message.factor, message.statistics.dimension, message.statistics.rows)
        if message.residual == 0:
            check_factor(message.factor, message.statistics.gram)


def check_plausible(message: Message, *, bits: int) -> None:
    """Raise as `check_message`, without checking the factor."""
    _check_arrays(message)
    statistics, counts = message.statistics, message.counts
    check_bounds(statistics.rows, bits)
    if counts.min() < 0 or sum(counts.tolist()) != statistics.rows:
        raise ImplausibleMessageError(
            "counts must not be negative and must add up to the number of rows: "
            "count each row once"
        )
    limit = statistics.dimension * statistics.rows * largest_code(bits) ** 2
    if not 0 <= message.residual <= limit:
        raise ImplausibleMessageError(
            "residual: is negative, NaN, or more than these rows can have: send "
            "the sketch's own residual"
        )
    fault = find_fault(
        statistics.gram,
        statistics.moment,
        statistics.rows,
        counts,
        bits=bits,
        residual=message.residual,
    )
    if fault is not None:
        raise ImplausibleMessageError(f"{fault}: summarise the rows again, with these steps")


def add_messages(messages: Iterable[Message], *, bits: int) -> Message:
    """Return the message of the rows of all messages, at least one, each of them checked.

    Exact. Their factors, if all have one, become one triangle, unless float64 cannot hold
    it. Raises ExactnessError for too many rows, RefusedError for different shapes.
    """
    parts = list(messages)
    first = parts[0].statistics
    rows = sum(part.statistics.rows for part in parts)
    check_bounds(rows, bits)
    gram, moment = np.zeros_like(first.gram), np.zeros_like(first.moment)
    counts, residual = np.zeros_like(parts[0].counts), 0.0
    for part in parts:
        _check_alike(first, part.statistics)
        gram += part.statistics.gram
        moment += part.statistics.moment
        counts += part.counts
        residual = sum_above(residual, part.residual)
    factor = stack_factors(parts)
    if factor is not None and not is_factor(factor, gram):
        factor = None
    return Message(RidgeStatistics(gram, moment, rows), counts, factor, residual)


def stack_factors(messages: Iterable[Message]) -> Matrix | None:
    """Return the triangle (min(k, d), d) of all factors, or None unless each has a usable one.

    Stacking is adding Gram matrices; a factorisation of the stack keeps it at most square.
    """
    factors, dimension = [], 0
    for message in messages:
        dimension = message.statistics.dimension
        factor = message.factor
        if factor is None or factor.ndim != 2 or factor.shape[1] != dimension:
            return None
        if not np.isfinite(factor).all():
            return None
        factors.append(factor)
    return triangle(factors, dimension)


def subtract_message(whole: Message, part: Message, *, bits: int) -> Message:
    """Return the message of the rows of `whole` that are not of `part`, without a factor.

    Raises InfeasibleRemovalError if no rows can have what is left, RefusedError for different
    shapes. The rest of sketches is known to within the sum of both residuals.
    """
    statistics = subtract_statistics(whole.statistics, part.statistics)
    residual = sum_above(whole.residual, part.residual)
    rest = Message(statistics, whole.counts - part.counts, None, residual)
    try:
        check_plausible(rest, bits=bits)
    except ExactnessError:
        raise
    except RefusedError as reason:
        raise _infeasible() from reason
    return rest


def subtract_statistics(whole: RidgeStatistics, part: RidgeStatistics) -> RidgeStatistics:
    """Return whole - part, exactly and without checking that rows can have it.

    Raises InfeasibleRemovalError for more rows than there are, RefusedError for different
    shapes.
    """
    _check_alike(whole, part)
    if part.rows > whole.rows:
        raise InfeasibleRemovalError(
            f"{part.rows} rows are to be forgotten, and only {whole.rows} were "
            "learned: check the scope"
        )
    # A difference that wraps is at least 2^64 - n·q², and above the most that may be left.
    return RidgeStatistics(
        whole.gram - part.gram, whole.moment - part.moment, whole.rows - part.rows
    )


def check_rest(statistics: RidgeStatistics, *, bits: int) -> None:
    """Raise InfeasibleRemovalError unless rows of any labels might have these statistics."""
    gram, moment, rows = statistics.gram, statistics.moment, statistics.rows
    fault = find_fault(gram, moment, rows, bits=bits)
    if fault is not None:
        raise _infeasible()


def _check_arrays(message: Message) -> None:
    statistics, counts = message.statistics, message.counts
    gram, moment, rows = statistics.gram, statistics.moment, statistics.rows
    integers = all(array.dtype == np.int64 for array in (gram, moment, counts))
    if not (integers and isinstance(rows, int) and not isinstance(rows, bool)):
        raise RefusedError(
            "gram, moment and counts must be int64 arrays, and the number of rows an integer"
        )
    if moment.ndim != 2 or 0 in moment.shape:
        raise RefusedError(
            "moment: must be a matrix with a row for each column of the features"
        )
    d, c = moment.shape
    if gram.shape != (d, d) or counts.shape != (c,) or rows < 0:
        raise RefusedError(
            "gram must be a square of as many rows as moment has, and counts have "
            "an entry for each column of moment"
        )


def _check_alike(one: RidgeStatistics, two: RidgeStatistics) -> None:
    if one.moment.shape != two.moment.shape:
        raise RefusedError(
            "the statistics are of different numbers of columns or classes, so of "
            "different models: join only those of one model"
        )


def sum_above(one: float, two: float) -> float:
    """Return one + two (>= 0), rounded up unless a side is 0."""
    return nextafter(one + two, inf) if one and two else one + two


def _infeasible() -> InfeasibleRemovalError:
    return InfeasibleRemovalError(
        "the message to forget was not part of this model: "
        "forget the statistics of the very codes that were learned, each once"
    )
