"""The verifier refutes no honest model, however few rows and bits there are."""

from dataclasses import replace

import numpy as np

from tests.workers.judge.claims import erasure, exact_claim, ridge_claim, with_rows
from workers.arrays import Rows
from workers.judge import registry
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.ridge_exact import METHOD


def test_the_head_of_any_few_rows_passes() -> None:
    """With few rows the residual has few units, and a bound rounded up to one was refuted."""
    template = exact_claim(erasure())
    for seed in range(300):
        rng = np.random.default_rng(seed)
        d, c = 6, 3
        count = int(rng.integers(1, 18))
        codes = np.rint(rng.normal(size=(count, d)) * 2**12).astype(np.int16)
        rows = Rows(codes, rng.integers(c, size=count))
        config = RidgeConfig(d, c, (-12,) * d, 16, 0.5)
        state = METHOD.refit(config, [rows]).state
        claim = replace(with_rows(template, rows), ridge=ridge_claim(state, config))
        head = registry.get("exact").verify(claim).checks[1]
        assert head.passed, (seed, head)
