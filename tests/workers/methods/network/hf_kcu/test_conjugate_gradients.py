"""Conjugate gradients against dense solves; planted indefinite, broken and lopsided matrices."""

import gc
from math import cos, inf, nan, pi, sqrt

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workers.errors import RefusedError
from workers.methods.network.hf_kcu.conjugate_gradients import (
    BreakdownError,
    Product,
    estimate_diagonal,
    preconditioner,
    solve,
)

torch.set_num_threads(1)


def with_spectrum(values: list[float], seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    square = torch.randn((len(values), len(values)), generator=generator).double()
    basis, _ = torch.linalg.qr(square)
    matrix: torch.Tensor = (basis * torch.tensor(values, dtype=torch.float64)) @ basis.T
    return (matrix + matrix.T) / 2


def energy_error(condition: float, iterations: int) -> float:
    """Return 2((√κ-1)/(√κ+1))^k, the paper's Theorem 3: a bound of ‖x_k - x‖_A / ‖x‖_A."""
    root = sqrt(condition)
    return float(2 * ((root - 1) / (root + 1)) ** iterations)


def times(matrix: torch.Tensor) -> Product:
    return lambda vector: matrix @ vector


def normal(size: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).double()


@settings(deadline=None, max_examples=30)
@example(values=[37.0, 1.0, 0.015625], damping=0.0, preconditioned=False)  # a turn of noise
@given(
    values=st.lists(st.floats(0.01, 100), min_size=1, max_size=12),
    damping=st.sampled_from([0.0, 0.5]),
    preconditioned=st.booleans(),
)
def test_it_solves_and_its_report_is_true(
    values: list[float], damping: float, preconditioned: bool
) -> None:
    matrix, right = with_spectrum(values), normal(len(values))
    damped = matrix + damping * torch.eye(len(values), dtype=torch.float64)
    found = solve(
        times(matrix),
        right,
        iterations=200,
        tolerance=1e-11,
        damping=damping,
        diagonal=torch.diagonal(damped).clone() if preconditioned else None,
    )
    assert found.report.outcome == "converged"
    wanted = torch.linalg.solve(damped, right)
    assert float((found.x - wanted).norm()) <= 1e-6 * float(wanted.norm())
    assert float((right - damped @ found.x).norm()) < 1e-9 * float(right.norm())
    assert len(found.report.residuals) == found.report.iterations + 1
    assert found.report.asymmetry < 1e-3
    low, high = min(values) + damping, max(values) + damping
    assert found.report.lowest is not None
    assert found.report.highest is not None
    assert low * 0.999 <= found.report.lowest <= found.report.highest <= high * 1.001


def test_after_k_steps_it_is_the_best_of_the_krylov_space() -> None:
    matrix, right = with_spectrum([1.0, 2.0, 5.0, 9.0, 20.0, 40.0]), normal(6)
    exact = torch.linalg.solve(matrix, right)
    for k in range(1, 6):
        columns = [right]
        for _ in range(k - 1):
            columns.append(matrix @ columns[-1])
        space, _ = torch.linalg.qr(torch.stack(columns, 1))
        best = space @ torch.linalg.solve(space.T @ matrix @ space, space.T @ right)
        found = solve(times(matrix), right, iterations=k)
        assert found.report.outcome == "iterations"
        assert found.report.products == found.report.iterations == k
        torch.testing.assert_close(found.x, best, rtol=1e-9, atol=1e-12)
        residual = float((right - matrix @ best).norm() / right.norm())
        assert found.report.residual == pytest.approx(residual, rel=1e-6)
        error, size = found.x - exact, float(exact @ matrix @ exact) ** 0.5
        assert float(error @ matrix @ error) ** 0.5 <= energy_error(40.0, k) * size


def test_ritz_values_find_the_condition_number() -> None:
    found = solve(times(with_spectrum([0.5, 1.0, 3.0, 8.0])), normal(4), iterations=4)
    assert found.report.ritz == pytest.approx((0.5, 8.0))
    assert found.report.condition == pytest.approx(16.0)
    short = solve(times(with_spectrum([0.5, 1.0, 3.0, 8.0])), normal(4), iterations=2).report
    assert short.ritz is not None
    assert 0.5 < short.ritz[0] < short.ritz[1] < 8.0


def test_condition_100_needs_27_iterations_for_one_percent() -> None:
    assert energy_error(100.0, 27) <= 0.01 < energy_error(100.0, 26)
    # The paper's 10 are not enough: Chebyshev points are the spectrum that the bound is of.
    values = [50.5 + 49.5 * cos(pi * (j + 0.5) / 60) for j in range(60)]
    matrix, right = with_spectrum(values), normal(60)
    exact = torch.linalg.solve(matrix, right)

    def error(k: int) -> float:
        gap = solve(times(matrix), right, iterations=k).x - exact
        return sqrt(float((gap @ matrix @ gap) / (exact @ matrix @ exact)))

    assert error(10) > 0.05
    assert error(27) < 0.01


def test_negative_curvature_stops_and_is_told() -> None:
    matrix = with_spectrum([4.0, 3.0, 2.0, -0.5])
    found = solve(times(matrix), normal(4), iterations=10)
    assert found.report.outcome == "negative-curvature"
    assert found.report.lowest is not None
    assert found.report.lowest <= 0
    assert found.report.iterations < 4
    assert float(found.x @ normal(4)) > 0  # the solution so far: still downhill
    assert solve(times(matrix), normal(4), iterations=10, damping=0.6).report.lowest > 0  # type: ignore[operator]
    at_once = solve(times(-matrix), torch.ones(4).double() @ matrix, iterations=10)
    assert at_once.report.outcome == "negative-curvature"
    singular = solve(times(torch.zeros(3, 3).double()), normal(3), iterations=3)
    assert singular.report.outcome == "negative-curvature"  # pᵀAp = 0
    assert (singular.report.iterations, float(singular.x.norm())) == (0, 0.0)


def test_products_of_no_symmetric_matrix_show() -> None:
    lopsided = with_spectrum([1.0, 2.0, 3.0, 4.0]) + torch.triu(torch.ones(4, 4).double(), 1)
    assert solve(times(lopsided), normal(4), iterations=4).report.asymmetry > 0.01
    straight = with_spectrum([1.0, 2.0, 3.0, 4.0])
    assert solve(times(straight), normal(4), iterations=4).report.asymmetry < 1e-10


def test_nothing_to_solve_is_solved() -> None:
    found = solve(times(torch.eye(3).double()), torch.zeros(3).double(), iterations=5)
    assert found.report.outcome == "converged"
    assert (found.report.products, float(found.x.norm())) == (0, 0.0)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_the_scale_of_the_right_side_does_not_matter(scale: float) -> None:
    matrix, right = with_spectrum([1.0, 2.0, 5.0]), normal(3)
    found = solve(times(matrix), scale * right, iterations=9, tolerance=1e-12)
    assert found.report.outcome == "converged"
    wanted = torch.linalg.solve(matrix, right)
    torch.testing.assert_close(found.x / scale, wanted, rtol=1e-9, atol=0)


@pytest.mark.parametrize("preconditioned", [False, True])
def test_it_holds_four_vectors_whatever_the_number_of_iterations(
    preconditioned: bool, request: pytest.FixtureRequest
) -> None:
    gc.freeze()  # existing objects are not vectors of this run, and slow to scan
    request.addfinalizer(gc.unfreeze)
    size = 1009
    values = torch.linspace(1, 50, size).double()
    right, diagonal = torch.ones(size).double(), torch.full((size,), 2.0).double()
    before = set(map(id, _vectors(size)))
    most = 0

    def product(vector: torch.Tensor) -> torch.Tensor:
        nonlocal most
        most = max(most, sum(id(v) not in before for v in _vectors(size)))
        return values * vector

    solve(product, right, iterations=6, diagonal=diagonal if preconditioned else None)
    assert most <= 4 + preconditioned


def _vectors(size: int) -> list[torch.Tensor]:
    held = [o for o in gc.get_objects() if type(o) is torch.Tensor and o.shape == (size,)]
    return list({o.data_ptr(): o for o in held}.values())


def test_the_diagonal_is_estimated_from_products() -> None:
    exact = torch.tensor([1.0, 5.0, 100.0]).double()
    found = estimate_diagonal(times(torch.diag(exact)), 3, probes=1, seed=4)
    torch.testing.assert_close(found, exact)
    matrix = with_spectrum([1.0, 2.0, 30.0, 4.0])
    found = estimate_diagonal(times(matrix), 4, probes=4000, seed=4)
    torch.testing.assert_close(found, torch.diagonal(matrix), rtol=0, atol=0.8)
    with pytest.raises(BreakdownError):
        estimate_diagonal(lambda vector: vector * nan, 3, probes=1, seed=0)


def test_a_diagonal_preconditioner_pays_where_scales_differ() -> None:
    scales = torch.logspace(-2, 2, 40).double()
    matrix = scales[:, None] * with_spectrum([1.0 + j / 20 for j in range(40)]) * scales
    right, exact = normal(40), torch.linalg.solve(matrix, normal(40))
    diagonal = estimate_diagonal(times(matrix), 40, probes=64, seed=2)

    def error(using: torch.Tensor | None) -> float:
        gap = solve(times(matrix), right, iterations=15, diagonal=using).x - exact
        return sqrt(float((gap @ matrix @ gap) / (exact @ matrix @ exact)))

    assert error(torch.diagonal(matrix).clone()) < 0.01 < 0.5 < error(None)
    assert error(preconditioner(diagonal, 1e-4, power=1.0)) < error(None) / 2


EYE = torch.eye(3).double()
ONES = torch.ones(3).double()
BROKEN: list[tuple[str, Product, torch.Tensor, str]] = [
    ("a product with NaN", lambda v: v * nan, ONES, "product"),
    ("a product with infinity", lambda v: v * inf, ONES, "product"),
    ("one NaN among the products", lambda v: v + torch.tensor([nan, 0, 0]), ONES, "product"),
    ("a product of another length", lambda v: v[:2], ONES, "shape"),
    ("a product in float32", lambda v: v.float(), ONES, "type"),
    ("a gradient with NaN", times(EYE), ONES * nan, "a gradient with NaN"),
    ("an infinite gradient", times(EYE), ONES * inf, "a gradient with NaN"),
]


@pytest.mark.parametrize(("product", "right", "word"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])  # fmt: skip
def test_breakdown_is_named(product: Product, right: torch.Tensor, word: str) -> None:
    with pytest.raises(BreakdownError, match=word):
        solve(product, right, iterations=3)


def test_numbers_out_of_range_are_refused() -> None:
    bad = [
        {"iterations": 0},
        {"iterations": 1, "tolerance": 1.0},
        {"iterations": 1, "damping": -1.0},
        {"iterations": 1, "damping": inf},
        {"iterations": 1, "diagonal": torch.tensor([1.0, 0.0, 1.0]).double()},
        {"iterations": 1, "diagonal": torch.ones(2).double()},
        {"iterations": 1, "diagonal": torch.ones(3)},
    ]
    for options in bad:
        with pytest.raises(RefusedError):
            solve(times(EYE), ONES, **options)  # type: ignore[arg-type]
    with pytest.raises(RefusedError):
        solve(times(EYE), torch.ones(3), iterations=1)
    with pytest.raises(RefusedError, match="damping"):
        preconditioner(ONES, 0.0)


def test_a_matrix_that_is_the_identity_needs_one() -> None:
    assert solve(times(EYE), ONES, iterations=5, tolerance=1e-12).report.iterations == 1
