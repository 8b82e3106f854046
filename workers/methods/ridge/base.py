"""The inputs and outputs of every ridge method, and the statistics of its batches.

A method never judges itself. A batch is rows or messages, in any mixture: both give the same
integers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType
from typing import Literal, Protocol, TypeVar

import numpy as np

from lethe.catalogue import RIDGE
from workers.arrays import Head, Matrix, Rows
from workers.discovery import import_room
from workers.errors import PenaltyError, RefusedError
from workers.methods.ridge.statistics.gram import (
    RidgeStatistics,
    accumulate,
    add,
    merge,
    subtract,
)
from workers.methods.ridge.statistics.message import (
    Batch,
    Message,
    check_plausible,
    check_rest,
    subtract_statistics,
)
from workers.methods.ridge.statistics.quantiser import Quantiser

Claim = Literal["exact", "numerically-exact", "certified-approximate"]


@dataclass(frozen=True, slots=True)
class RidgeConfig:
    """Everything a ridge head depends on, apart from its rows; fixed at registration.

    W* = argmin ‖XW - Y‖² + penalty·‖W‖² over X_ij = codes_ij·2**exponents[j], Y one-hot.
    Neither the steps nor the penalty may be tuned on rows that can later be erased.
    unseen: whether only sums of the rows are known.

    Raises RefusedError if the steps or the width are out of range, PenaltyError unless
    0 < penalty < inf.
    """

    dimension: int
    classes: int
    exponents: tuple[int, ...]
    bits: int
    penalty: float
    unseen: bool = False

    def __post_init__(self) -> None:
        if self.dimension < 1 or self.classes < 1:
            raise RefusedError("dimension and classes must be at least 1")
        if len(self.exponents) != self.dimension:
            raise RefusedError(
                f"exponents: {len(self.exponents)} for {self.dimension} columns: give "
                "one for each column"
            )
        Quantiser(self.exponents, self.bits)
        if not (isfinite(self.penalty) and self.penalty > 0):
            raise PenaltyError("the penalty must be a positive number: try 1.0")

    @property
    def quantiser(self) -> Quantiser:
        """The quantiser whose codes this head is trained on."""
        return Quantiser(self.exponents, self.bits)

    @property
    def convexity(self) -> float:
        """A lower bound of the eigenvalues of XᵀX + λI, by which proven distances divide.

        It is λ, and λ/2 for sums of unseen rows: the verifier can only tell that XᵀX of those
        has no eigenvalue below -λ/2.
        """
        return self.penalty / 2 if self.unseen else self.penalty


@dataclass(frozen=True, slots=True, eq=False)
class RidgeState:
    """Exact statistics and the head they determine, the same whatever the method.

    head (d, c), in target units per feature unit, is the correctly rounded W* in float32
    or a float64 matrix within `bound` of it; witness (k, d, c) float64, summed over k
    without rounding, is W to within `bound`: ‖Σ witness - W*‖_F <= bound, proven.

    inverse (d, d) float64, symmetric, is 4^q·(XᵀX + λI)⁻¹ up to its drift, for the q of
    `penalty_exponent`, or None where no method tracks it; updates counts the updates it
    went through since it was last computed from the statistics. The arrays are read-only.

    sketched: the statistics with the sum of the sketches as Gram matrix, which inverse and
    head then follow instead of the exact ones, or None. In feature units, with D for the
    steps: ‖D(G_sketched - G)D‖₂ <= drift, proven; and ‖D(G_rows - G)D‖₂ <= attested, attested
    by the clients who sent sketches instead of rows (0: the rows are summed).
    """

    statistics: RidgeStatistics
    head: Head | Matrix
    witness: Matrix
    bound: float
    inverse: Matrix | None = None
    updates: int = 0
    sketched: RidgeStatistics | None = None
    drift: float = 0.0
    attested: float = 0.0

    def __post_init__(self) -> None:
        self.head.setflags(write=False)
        self.witness.setflags(write=False)
        if self.inverse is not None:
            self.inverse.setflags(write=False)


def check_shape(config: RidgeConfig, state: RidgeState, *, attested_too: bool = False) -> None:
    """Raise RefusedError unless the state is of a model with this configuration's shape.

    Only a method that widens its bounds by `attested` may continue from such a state.
    """
    if state.statistics.moment.shape != (config.dimension, config.classes):
        raise RefusedError(
            "this state is of another number of columns or classes: load the state "
            "of this model"
        )
    if state.attested > 0 and not attested_too:
        raise RefusedError(
            "some rows of this model are known by sketches only, so no head can be proven "
            "exact: use the method ridge-sketched, or refit from exact messages"
        )


@dataclass(frozen=True, slots=True)
class UpdateWork:
    """What an update cost: wall-clock seconds, rows touched, floating-point operations."""

    seconds: float
    rows: int
    flops: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A method's result: the new state, its claim, and the work done.

    claim names the verifier to use; notes hold further facts for the certificate, such as why
    a tracked inverse was recomputed.
    """

    state: RidgeState
    claim: Claim
    work: UpdateWork
    notes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class Method(Protocol):
    """An unlearning method for ridge heads. No call modifies the state it is given.

    A batch is rows, or a message that has their exact statistics: both give the same
    integers.
    """

    @property
    def id(self) -> str:
        """The name requests and certificates use."""

    @property
    def version(self) -> str:
        """Changes whenever the same input may give another result."""

    def check_penalty(self, config: RidgeConfig, statistics: RidgeStatistics) -> None:
        """Raise PenaltyError, naming one that suffices, if `learn` would for these sums."""

    def learn(self, config: RidgeConfig, state: RidgeState | None, batch: Batch) -> Outcome:
        """Return the state that knows this batch too (`state` None: this batch alone)."""

    def forget(self, config: RidgeConfig, state: RidgeState, batch: Batch) -> Outcome:
        """Return the state that training without this batch gives. Raises RefusedError."""

    def refit(self, config: RidgeConfig, blocks: Iterable[Batch]) -> Outcome:
        """Return the state of training from scratch on all of `blocks`."""


METHODS: dict[str, Method] = {}
_Made = TypeVar("_Made", bound=Method)


def bind(name: str, method: _Made) -> _Made:
    """Bind a method to its line in the catalogue, and return it."""
    assert name in RIDGE, f"no method of ridge heads is called {name}: see lethe/catalogue.py"
    assert name not in METHODS, f"two methods are called {name}"
    METHODS[name] = method
    return method


def gather(
    batches: Iterable[Batch], dimension: int, classes: int, *, bits: int
) -> RidgeStatistics:
    """Return the statistics of all batches. Raises as `accumulate` and `add_batch`."""
    nothing = np.zeros((dimension, dimension), dtype=np.int64)
    summed = RidgeStatistics(nothing, np.zeros((dimension, classes), dtype=np.int64), 0)

    def rows() -> Iterator[Rows]:
        nonlocal summed
        for batch in batches:
            if isinstance(batch, Rows):
                yield batch
            else:
                summed = add_batch(summed, batch, bits=bits)

    # Only with a list can a device that failed half way start again.
    source = list(rows()) if isinstance(batches, Sequence) else rows()
    statistics = accumulate(source, dimension, classes, bits=bits)
    return merge(statistics, summed, bits=bits) if summed.rows else statistics


def add_batch(statistics: RidgeStatistics, batch: Batch, *, bits: int) -> RidgeStatistics:
    """Return the statistics with this batch as well.

    Raises ExactnessError for too many rows, RefusedError for another shape, a message that
    no rows can have, or a sketch of one.
    """
    if isinstance(batch, Rows):
        return add(statistics, batch, bits=bits)
    _check(statistics, batch, bits)
    return merge(statistics, batch.statistics, bits=bits)


def subtract_batch(statistics: RidgeStatistics, batch: Batch, *, bits: int) -> RidgeStatistics:
    """Return the statistics as if this batch had never been added.

    Raises InfeasibleRemovalError if no rows could have them, else as `add_batch`. For a
    message that takes O(d³), since what is left must be positive semidefinite: otherwise
    no bound that divides by λ holds.
    """
    if isinstance(batch, Rows):
        return subtract(statistics, batch, bits=bits)
    _check(statistics, batch, bits)
    after = subtract_statistics(statistics, batch.statistics)
    check_rest(after, bits=bits)
    return after


def _check(statistics: RidgeStatistics, message: Message, bits: int) -> None:
    if message.statistics.moment.shape != statistics.moment.shape:
        raise RefusedError(
            "this message is of another number of columns or classes: summarise "
            "the rows for this model"
        )
    check_plausible(message, bits=bits)
    if message.residual > 0:
        raise RefusedError(
            "this message is a sketch, which an exact method does not take: use "
            "the method ridge-sketched, or send gram or factor"
        )


def method_named(method_id: str) -> Method:
    """Return the method of that name. Raises RefusedError naming the known ones."""
    names = method_names()
    if method_id not in METHODS:
        # The requested name is untrusted and not echoed.
        raise RefusedError(f"unknown method: choose one of {', '.join(names)}")
    return METHODS[method_id]


def method_names() -> tuple[str, ...]:
    """Return the names of all methods, sorted."""
    import_room("workers.methods.ridge")  # each file binds its method
    return tuple(sorted(METHODS))
