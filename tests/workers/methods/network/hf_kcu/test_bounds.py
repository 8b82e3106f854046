"""The stability bound against poisoned pairs that are solved exactly; causal weights."""

from math import inf, nan

import numpy as np
import pytest

from workers.errors import RefusedError
from workers.methods.network.hf_kcu.bounds import stability
from workers.methods.network.hf_kcu.settings import causal_weights


@pytest.mark.parametrize("seed", range(20))
def test_no_poison_within_the_bound_turns_the_step_further(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, epsilon, rho, scale = 6, 0.3 * rng.random(), 0.2 * rng.random(), 0.1
    basis, _ = np.linalg.qr(rng.standard_normal((d, d)))
    clean = basis @ np.diag(0.8 + 5 * rng.random(d)) @ basis.T
    g = rng.standard_normal(d)
    noise = rng.standard_normal((d, d))
    noise = noise + noise.T
    seen = clean + epsilon * noise / np.linalg.norm(noise, 2)
    shift = rng.standard_normal(d)
    answered = g + rho * shift / np.linalg.norm(shift)
    rough = np.linalg.solve(seen, answered) + 0.01 * rng.standard_normal(d)
    residual = np.linalg.norm(answered - seen @ rough) / np.linalg.norm(answered)
    bound = stability(
        floor=float(np.linalg.eigvalsh(seen)[0]),
        floor_proven=True,
        gradient=float(np.linalg.norm(answered)),
        residual=float(residual),
        epsilon=epsilon,
        rho=rho,
        scale=scale,
    )
    gap = scale * np.linalg.norm(rough - np.linalg.solve(clean, g))
    assert gap <= bound.total
    assert scale * np.linalg.norm(rough - np.linalg.solve(seen, answered)) <= bound.solver


def test_the_bound_is_met_by_the_worst_poison() -> None:
    # One dimension: 1/(μ-ε) - 1/μ is ε/(μ(μ-ε)), equality in Theorem 1.
    bound = stability(floor=2.0, floor_proven=True, gradient=3.0, residual=0.0, epsilon=0.5)
    assert bound.adversarial == pytest.approx(3.0 / 1.5 - 3.0 / 2.0)
    assert bound.total == bound.adversarial


def test_damping_tightens_it_and_poison_beyond_the_floor_has_no_bound() -> None:
    def of(floor: float) -> float:
        return stability(
            floor=floor, floor_proven=False, gradient=1.0, residual=0.1, epsilon=0.1, rho=0.1
        ).total

    assert of(1.0) < of(0.2) < of(0.1) == inf
    assert of(0.0) == of(-1.0) == inf


@pytest.mark.parametrize("name", ["gradient", "residual", "epsilon", "rho", "scale"])
@pytest.mark.parametrize("value", [-1.0, nan, inf])
def test_a_bound_of_nonsense_is_refused(name: str, value: float) -> None:
    given = {"gradient": 1.0, "residual": 0.0, "epsilon": 0.0, "rho": 0.0, "scale": 1.0}
    with pytest.raises(RefusedError):
        stability(floor=1.0, floor_proven=True, **{**given, name: value})


def test_causal_weights() -> None:
    rows, norms = {"a": 30, "b": 10}, {"a": 1.0, "b": 3.0}
    assert causal_weights("rows", rows, norms) == {"a": 0.75, "b": 0.25}
    assert causal_weights("gradient", rows, norms) == {"a": 0.25, "b": 0.75}
    for kind in ("rows", "gradient"):
        assert causal_weights(kind, {"a": 3}, {"a": 0.7}) == {"a": 1.0}
    assert causal_weights("gradient", rows, {"a": 0.0, "b": 0.0}) == {"a": 0.75, "b": 0.25}
    for bad_rows, bad_norms in (({}, {}), ({"a": 1}, {"b": 1.0}), ({"a": 0}, {"a": 1.0})):
        with pytest.raises(RefusedError):
            causal_weights("rows", bad_rows, bad_norms)
