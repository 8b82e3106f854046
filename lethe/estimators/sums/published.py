"""The published part of ridge and naive Bayes, and its predictions."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.estimators import container
from lethe.estimators.errors import EstimatorInputError
from lethe.estimators.sums.config import BAYES, KINDS, RIDGE
from lethe.estimators.sums.fixed_point import Floats

Names = Sequence[Sequence[str]]  # type and text of each class's label


@dataclass(frozen=True, slots=True, eq=False)
class PublishedSums:
    """A model that predicts. classes: type and text of each label, empty for a regressor."""

    kind: str
    classes: Names

    @property
    @abstractmethod
    def arrays(self) -> list[Floats]:
        """The arrays of the file."""

    @property
    @abstractmethod
    def columns(self) -> int:
        """The number of features per row."""

    @abstractmethod
    def outputs(self, features: Floats) -> Floats:
        """Return, for rows (n, d), the output of each class (n, classes) or the number (n, 1).

        For naive Bayes: the logarithm of the joint probability.
        """

    def predict(self, features: Floats) -> NDArray[Any]:
        """Return indices of classes (n,), ties to the first, or numbers (n,)."""
        found = self.outputs(features)
        best: NDArray[Any] = found.argmax(axis=1) if self.classes else found[:, 0]
        return best

    def to_bytes(self) -> bytes:
        """Return the file that is published."""
        named = {"classes": [list(one) for one in self.classes]} if self.classes else {}
        return container.pack({"kind": self.kind, **named}, self.arrays)


@dataclass(frozen=True, slots=True, eq=False)
class PublishedRidge(PublishedSums):
    """coef (outputs, d), intercept (outputs,)."""

    coef: Floats
    intercept: Floats

    @property
    def arrays(self) -> list[Floats]:
        """The arrays of the file."""
        return [self.coef, self.intercept]

    @property
    def columns(self) -> int:
        """The number of features per row."""
        return int(self.coef.shape[1])

    def outputs(self, features: Floats) -> Floats:
        """Return features times weights, plus the intercept."""
        found: Floats = features @ self.coef.T + self.intercept
        return found


@dataclass(frozen=True, slots=True, eq=False)
class PublishedBayes(PublishedSums):
    """prior (classes,): probabilities.

    parts: for a Gaussian means and variances, each (classes, d); else probabilities of
    features.
    """

    prior: Floats
    parts: tuple[Floats, ...]

    @property
    def arrays(self) -> list[Floats]:
        """The arrays of the file."""
        return [self.prior, *self.parts]

    @property
    def columns(self) -> int:
        """The number of features per row."""
        return int(self.parts[0].shape[1])

    @property
    def log_prior(self) -> Floats:
        """The logarithms of the prior, minus infinity for a class without rows."""
        with np.errstate(divide="ignore"):
            found: Floats = np.log(self.prior)
        return found

    def outputs(self, features: Floats) -> Floats:
        """Return the logarithms of joint probabilities (n, classes)."""
        if self.kind == "multinomial-nb":
            likely = features @ np.log(self.parts[0]).T
        else:
            each = [
                -0.5 * (np.log(2 * np.pi * var) + (features - mean) ** 2 / var).sum(axis=1)
                for mean, var in zip(*self.parts, strict=True)
            ]
            likely = np.stack(each, axis=1)
        found: Floats = self.log_prior + likely
        return found


def read_published(data: bytes) -> PublishedSums:
    """Parse a published file.

    Raises EstimatorInputError: it is not such a file, its arrays do not fit each other, or one
    holds a NaN, an infinity, a probability outside 0 to 1, or a variance that is not above 0.
    """
    header, arrays = container.unpack(data, *KINDS)
    kind, classes = header.pop("kind"), header.pop("classes", [])
    found: PublishedSums
    try:
        if kind in RIDGE:
            coef, intercept = arrays
            found = PublishedRidge(kind, classes, coef, intercept)
            same = coef.shape == (max(1, len(classes)), coef.shape[1])
            same &= intercept.shape == (len(coef),) and bool(classes) == (kind != RIDGE[0])
        else:
            prior, *parts = arrays
            found = PublishedBayes(kind, classes, prior, tuple(parts))
            same = len(parts) == (2 if kind == BAYES[0] else 1) and bool(classes)
            same &= prior.shape == (len(classes),)
            same &= all(one.shape == (len(classes), parts[0].shape[1]) for one in parts)
            spreads = parts[1:] if kind == BAYES[0] else []
            chances = [prior] if kind == BAYES[0] else arrays
            same &= all(bool((one > 0).all()) for one in spreads)
            same &= all(bool(((one >= 0) & (one <= 1)).all()) for one in chances)
        same &= all(one.dtype == np.float64 and np.isfinite(one).all() for one in arrays)
        same &= all([type(word) for word in one] == [str, str] for one in classes)
        same &= not header and found.to_bytes() == data
    except (AttributeError, IndexError, TypeError, ValueError):
        same = False
    if not same:
        raise EstimatorInputError("this is not a ridge or naive Bayes file: read it again")
    return found
