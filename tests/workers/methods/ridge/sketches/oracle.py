"""Sketches by Python's integers and fractions: slow, exact, and no code of theirs."""

from fractions import Fraction

import numpy as np

from workers.arrays import Codes, IntMatrix


def expand(factor: list[list[int]], shift: int, columns: int) -> list[list[int]]:
    half = 4**shift // 2
    return [
        [(sum(row[i] * row[j] for row in factor) + half) // 4**shift for j in range(columns)]
        for i in range(columns)
    ]


def positive_semidefinite(matrix: list[list[Fraction]]) -> bool:
    """By symmetric elimination over the rationals."""
    rest = [list(row) for row in matrix]
    while rest:
        pivot = rest[0][0]
        if pivot < 0 or (pivot == 0 and any(rest[0])):
            return False
        rest = [
            [
                rest[i][j] - (rest[i][0] * rest[0][j] / pivot if pivot else 0)
                for j in range(1, len(rest))
            ]
            for i in range(1, len(rest))
        ]
    return True


def norm_is_at_most(matrix: IntMatrix, exponents: list[int], bound: float) -> bool:
    """Whether ‖D·matrix·D‖₂ <= bound, exactly: bound·I ∓ DMD has no negative eigenvalue."""
    d = len(matrix)
    scaled = [
        [
            Fraction(int(matrix[i, j])) * Fraction(2) ** (exponents[i] + exponents[j])
            for j in range(d)
        ]
        for i in range(d)
    ]
    return all(
        positive_semidefinite(
            [
                [Fraction(bound) * (i == j) + sign * scaled[i][j] for j in range(d)]
                for i in range(d)
            ]
        )
        for sign in (1, -1)
    )


def decaying_codes(seed: int, n: int, d: int, decay: float = 0.2) -> Codes:
    """Rows whose spectrum falls off by e^-decay from one direction to the next."""
    rng = np.random.default_rng(seed)
    turned = np.linalg.qr(rng.normal(size=(d, d)))[0]
    rows = rng.normal(size=(n, d)) * np.exp(-decay * np.arange(d)) @ turned
    codes: Codes = np.rint(rows / np.abs(rows).max() * 32767).astype(np.int16)
    return codes


def gram(codes: Codes) -> IntMatrix:
    wide = codes.astype(np.int64)
    return wide.T @ wide
