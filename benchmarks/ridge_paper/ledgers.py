"""The papers' float ledgers: what one implements from their equations, in one precision.

No integers, no bounds, no resets: these are measured, not shipped. Equation numbers are
the ridge paper's unless ACU is named. Every array is of the ledger's dtype.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, qr, solve_triangular

from workers.blas_threads import threads_for

Array = NDArray[Any]  # float32 or float64, as the ledger
Float = type[np.float32] | type[np.float64]

ACU_ROWS = 128  # of one step of ACU's recursion over a large set


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """A client's thin-QR message: root (k, d) with rootᵀroot = XᵀX, and moment XᵀY (d, c)."""

    root: Array
    moment: Array


def factor_message(features: Array, targets: Array) -> Factor:
    """Return the message of rows (m, d), root R of a thin QR, k = min(m, d)."""
    moment = features.T @ targets
    if len(features) == 1:
        return Factor(features, moment)  # its own factor
    (root,) = qr(features, mode="r", check_finite=False)
    return Factor(root[: min(features.shape)], moment)


class Ledger(ABC):
    """A head that follows additions and deletions of rows."""

    def __init__(self, d: int, c: int, penalty: float, dtype: Float = np.float64) -> None:
        self.penalty, self.dtype = penalty, dtype
        self.shape = (d, c)

    @abstractmethod
    def update(self, features: Array, targets: Array, sign: int) -> None:
        """Add (+1) or delete (-1) rows (m, d) and their one-hot targets (m, c)."""

    @abstractmethod
    def head(self) -> Array:
        """Return W (d, c)."""

    def threads(self, rows: int) -> AbstractContextManager[None]:
        """Limit BLAS to one thread where `rows` make a product too small for two."""
        return threads_for(2 * rows * self.shape[0] ** 2)

    def cast(self, array: Array) -> Array:
        """Return the array in this ledger's precision."""
        return array.astype(self.dtype, copy=False)


class VariantA(Ledger):
    """(5), (6): statistics are added and subtracted, the head is solved for anew."""

    def __init__(self, d: int, c: int, penalty: float, dtype: Float = np.float64) -> None:
        super().__init__(d, c, penalty, dtype)
        self.gram: Array = np.zeros((d, d), dtype)
        self.moment: Array = np.zeros((d, c), dtype)

    def update(self, features: Array, targets: Array, sign: int) -> None:
        """Add or subtract the rows' statistics."""
        x, y = self.cast(features), self.cast(targets)
        with self.threads(len(x)):
            self.gram += sign * (x.T @ x)
            self.moment += sign * (x.T @ y)

    def head(self) -> Array:
        """Factorise G + λI and solve: O(d³)."""
        system = self.gram.copy()
        system[np.diag_indices(len(system))] += self.penalty
        with self.threads(len(system) // 6):  # d³/3
            factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
            weights: Array = cho_solve(factor, self.moment, check_finite=False)
        return weights


class VariantB(Ledger):
    """(7) to (10): inverse P and head W follow by Sherman-Morrison-Woodbury."""

    def __init__(self, d: int, c: int, penalty: float, dtype: Float = np.float64) -> None:
        super().__init__(d, c, penalty, dtype)
        self.inverse: Array = np.eye(d, dtype=dtype)
        self.inverse /= self.penalty
        self.weights: Array = np.zeros((d, c), dtype)

    def update(self, features: Array, targets: Array, sign: int) -> None:
        """Follow by the thin-QR factor of the rows."""
        x, y = self.cast(features), self.cast(targets)
        with self.threads(len(x)):
            self.receive([factor_message(x, y)], sign)

    def receive(self, messages: list[Factor], sign: int) -> None:
        """Apply one round's client messages, stacked."""
        roots = np.concatenate([message.root for message in messages])
        moment = sum((message.moment for message in messages[1:]), messages[0].moment)
        side = self.inverse @ roots.T  # V = PU
        middle = np.eye(len(roots), dtype=self.dtype) + sign * (roots @ side)
        factor = np.linalg.cholesky(middle)
        half = solve_triangular(factor, side.T, lower=True, check_finite=False)
        self.inverse = self.inverse - sign * (half.T @ half)
        # (8), (10): W' = W ± P'(ΔC - ΔG W)
        error = moment - roots.T @ (roots @ self.weights)
        self.weights = self.weights + sign * (self.inverse @ error)

    def head(self) -> Array:
        """Return W as tracked."""
        return self.weights


class Acu(Ledger):
    """ACU (5), (6) and (45): tracking matrix K and head W, from the rows alone."""

    def __init__(self, d: int, c: int, penalty: float, dtype: Float = np.float64) -> None:
        super().__init__(d, c, penalty, dtype)
        self.tracking: Array = np.eye(d, dtype=dtype)
        self.tracking /= self.penalty
        self.weights: Array = np.zeros((d, c), dtype)

    def update(self, features: Array, targets: Array, sign: int) -> None:
        """Follow by the rows, a few at a time."""
        for start in range(0, len(features), ACU_ROWS):
            part = slice(start, start + ACU_ROWS)
            x, y = self.cast(features[part]), self.cast(targets[part])
            with self.threads(len(x)):
                self._step(x, y, sign)

    def _step(self, x: Array, y: Array, sign: int) -> None:
        side = self.tracking @ x.T
        middle = np.eye(len(x), dtype=self.dtype) + sign * (x @ side)
        # A product with the inverse, as (5) writes it; in place, as K may be 800 MB.
        self.tracking -= sign * (side @ np.linalg.solve(middle, side.T))
        # (6): W' = (I ± K'XᵀX)W ∓ K'XᵀY
        self.weights = self.weights + sign * (self.tracking @ (x.T @ (y - x @ self.weights)))

    def head(self) -> Array:
        """Return W as tracked."""
        return self.weights


def pooled(
    ledger: VariantB, features: Array, targets: Array, clients: list[NDArray[np.int64]]
) -> None:
    """Add the rows of all clients, whose factors are stacked until they have d rows.

    One round of all messages at once, as the paper has it, would need a system of as many
    rows as all factors together: up to n.
    """
    waiting: list[Factor] = []
    for index in clients:
        x, y = ledger.cast(features[index]), ledger.cast(targets[index])
        with ledger.threads(len(x)):
            waiting.append(factor_message(x, y))
        if sum(len(message.root) for message in waiting) >= ledger.shape[0]:
            ledger.receive(waiting, +1)
            waiting = []
    if waiting:
        ledger.receive(waiting, +1)


def deviation(head: Array, reference: Array) -> float:
    """Return the relative Frobenius distance ‖head - reference‖ / ‖reference‖, in float64."""
    difference = head.astype(np.float64) - reference
    return float(np.linalg.norm(difference) / np.linalg.norm(reference))
