"""Ridge heads by rational arithmetic: slow, exact, and no code of the methods."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from workers.arrays import Codes, Head, Labels, Matrix, Rows
from workers.methods.ridge.base import RidgeConfig, RidgeState

Rational = list[list[Fraction]]


def solve(rows: Rows, config: RidgeConfig) -> Rational:
    """W* (d, c) by Gaussian elimination over the rationals."""
    features = [
        [
            Fraction(int(code)) * Fraction(2) ** step
            for code, step in zip(row, config.exponents, strict=True)
        ]
        for row in rows.codes
    ]
    d = config.dimension
    left = [
        [sum((x[i] * x[j] for x in features), Fraction(0)) for j in range(d)] for i in range(d)
    ]
    for i in range(d):
        left[i][i] += Fraction(config.penalty)
    right = [
        [
            sum(
                (x[i] for x, y in zip(features, rows.labels, strict=True) if y == k),
                Fraction(0),
            )
            for k in range(config.classes)
        ]
        for i in range(d)
    ]
    for i in range(d):
        for below in range(i + 1, d):
            factor = left[below][i] / left[i][i]
            if factor:
                left[below] = [
                    a - factor * b for a, b in zip(left[below], left[i], strict=True)
                ]
                right[below] = [
                    a - factor * b for a, b in zip(right[below], right[i], strict=True)
                ]
    weights: Rational = [[Fraction(0)] * config.classes for _ in range(d)]
    for i in reversed(range(d)):
        for k in range(config.classes):
            known = sum((left[i][j] * weights[j][k] for j in range(i + 1, d)), Fraction(0))
            weights[i][k] = (right[i][k] - known) / left[i][i]
    return weights


def round_to_float32(value: Fraction) -> float:
    """Nearest float32, ties to even, by integer division; +0 below 2^-90."""
    magnitude = abs(value)
    if magnitude < Fraction(1, 2**90):
        return 0.0
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    whole, rest = divmod(magnitude / Fraction(2) ** (exponent - 23), 1)
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2):
        whole += 1
    rounded = float(whole) * 2.0 ** (exponent - 23)
    return rounded if value > 0 else -rounded


def head_of(weights: Rational) -> Head:
    return np.array([[round_to_float32(w) for w in row] for row in weights], dtype=np.float32)


def squared_distance(witness: Matrix, weights: Rational) -> Fraction:
    """‖Σ witness - W*‖_F², exactly."""
    total = Fraction(0)
    for i, row in enumerate(weights):
        for k, weight in enumerate(row):
            parts = [Fraction(float(term)) for term in witness[:, i, k]]
            total += (sum(parts, Fraction(0)) - weight) ** 2
    return total


def python_gram(
    codes: Codes, labels: Labels, classes: int
) -> tuple[list[list[int]], list[list[int]]]:
    """G and C with Python's integers."""
    rows = codes.tolist()
    d = codes.shape[1]
    gram = [[sum(x[i] * x[j] for x in rows) for j in range(d)] for i in range(d)]
    moment = [
        [
            sum(x[i] for x, y in zip(rows, labels.tolist(), strict=True) if y == k)
            for k in range(classes)
        ]
        for i in range(d)
    ]
    return gram, moment


def refit_by_svd(rows: Rows, config: RidgeConfig) -> Matrix:
    """W (d, c) as least squares on [X; √λ·I], which never forms XᵀX."""
    d, c = config.dimension, config.classes
    features = rows.codes * np.ldexp(1.0, np.array(config.exponents))
    padded = np.vstack([features, np.sqrt(config.penalty) * np.eye(d)])
    targets = np.vstack([np.eye(c)[rows.labels], np.zeros((d, c))])
    weights: Matrix = np.linalg.lstsq(padded, targets)[0]
    return weights


def random_rows(rng: np.random.Generator, n: int, d: int, c: int, largest: int = 32767) -> Rows:
    codes = rng.integers(-largest, largest + 1, size=(n, d)).astype(np.int16)
    return Rows(codes, rng.integers(0, c, size=n))


def joined(blocks: Sequence[Rows]) -> Rows:
    return Rows(
        np.concatenate([block.codes for block in blocks]),
        np.concatenate([block.labels for block in blocks]),
    )


def without(rows: Rows, gone: Sequence[int]) -> Rows:
    keep = np.ones(len(rows), dtype=bool)
    keep[list(gone)] = False
    return Rows(rows.codes[keep], rows.labels[keep])


def only(rows: Rows, kept: Sequence[int]) -> Rows:
    index = np.array(kept, dtype=np.int64)
    return Rows(rows.codes[index], rows.labels[index])


def within_bound(state: RidgeState, rows: Rows, config: RidgeConfig) -> bool:
    """Whether ‖head - W*‖_F <= bound, over the rationals."""
    return squared_distance(state.witness, solve(rows, config)) <= Fraction(state.bound) ** 2
