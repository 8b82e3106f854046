import numpy as np
import pytest
import torch

from tests.workers.methods.network.baselines.central_case import (
    CLASSES,
    CONFIG,
    FEATURES,
    NETWORK,
    WEIGHTS,
    Array,
    Head,
    bits,
    close,
    make_case,
    pooled,
    softmax,
)
from workers.arrays import Labels
from workers.errors import RefusedError
from workers.methods.network.base import UnlearningRequest, UnmetNeedError
from workers.methods.network.baselines import wood_fisher
from workers.methods.network.baselines.wood_fisher import WoodFisher, fisher_inverse_times
from workers.methods.network.guard import StepGuard
from workers.methods.network.local_case import local_case
from workers.methods.network.validation import held_out
from workers.training.fedavg.base import ClientData


def by_recursion(gradients: Array, vector: Array, damping: float) -> Array:
    """The published rank-one recursion on a dense inverse."""
    rows, size = gradients.shape
    inverse = np.eye(size) / damping
    for gradient in gradients:
        moved = inverse @ gradient
        inverse -= np.outer(moved, moved) / (rows + gradient @ moved)
    return np.asarray(inverse @ vector)


def as_known(gradients: Array, vector: Array) -> Array:
    """The result of a known implementation, λ 1: F⁻¹g is not recomputed for each row."""
    rows, found, kept = len(gradients), vector.copy(), gradients[0].copy()
    for gradient in gradients[1:]:
        along = kept @ gradient
        found -= found @ gradient / (rows + along) * kept
        kept -= along / (rows + along) * kept
    return np.asarray(found)


def each_gradient(x: Array, y: Labels) -> Array:
    slopes = softmax(Head.of().logits(x)) - np.eye(CLASSES)[y]
    head = Head.of()
    return np.stack(
        [head.back(slopes[i : i + 1], x[i : i + 1]).vector() for i in range(len(x))]
    )


@pytest.mark.parametrize(("rows", "size"), [(1, 5), (4, 9), (9, 4), (30, 12)])
@pytest.mark.parametrize("damping", [1e-3, 1.0])
def test_the_inverse_is_the_recursion_and_a_dense_solve(
    rows: int, size: int, damping: float
) -> None:
    rng = np.random.default_rng(rows)
    gradients, vector = rng.normal(size=(rows, size)), rng.normal(size=size)
    found = fisher_inverse_times(torch.from_numpy(gradients), torch.from_numpy(vector), damping)
    recursion = by_recursion(gradients, vector, damping)
    dense = np.linalg.solve(damping * np.eye(size) + gradients.T @ gradients / rows, vector)
    assert np.allclose(found.numpy(), recursion, rtol=1e-8, atol=1e-9)
    assert np.allclose(found.numpy(), dense, rtol=1e-8, atol=1e-9)


def test_the_known_implementation_inverts_another_matrix() -> None:
    rng = np.random.default_rng(1)
    gradients, vector = rng.normal(size=(30, 12)), rng.normal(size=12)
    right = by_recursion(gradients, vector, 1.0)
    found = fisher_inverse_times(torch.from_numpy(gradients), torch.from_numpy(vector), 1.0)
    assert np.allclose(found.numpy(), right)
    assert np.linalg.norm(as_known(gradients, vector) - right) > 0.1 * np.linalg.norm(right)


def test_blocks_of_columns_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(2)
    gradients, vector = torch.randn((6, 50), generator=rng), torch.randn(50, generator=rng)
    whole = fisher_inverse_times(gradients, vector, 0.1)
    monkeypatch.setattr(wood_fisher, "BLOCK", 7)
    assert torch.allclose(fisher_inverse_times(gradients, vector, 0.1), whole, rtol=1e-12)


def test_the_step_is_the_one_by_hand() -> None:
    found = WoodFisher(scale=0.5, damping=0.05).run(make_case())
    (stay, labels), (leave, others) = pooled("retained"), pooled("forget")
    kept, gone = each_gradient(stay, labels), each_gradient(leave, others)
    m, n = len(gone), len(gone) + len(kept)
    vector = gone.sum(0) / n - m / (n * (n - m)) * kept.sum(0)
    step = 0.5 * by_recursion(kept, vector, 0.05)
    expected = Head.of().plus(Head(step[3:].reshape(3, 4), step[:3]), 1.0)
    assert close(found.weights, expected, 1e-5)
    assert not close(
        found.weights, Head.of().plus(Head(step[3:].reshape(3, 4), step[:3]), -1.0), 1e-3
    )


def optimum(x: Array, y: Labels) -> Head:
    """Newton's method by least squares: shifting all logits alike changes nothing."""
    head = Head(np.zeros((CLASSES, FEATURES)), np.zeros(CLASSES))
    wide = np.hstack([x, np.ones((len(x), 1))])
    for _ in range(15):
        p = softmax(head.logits(x))
        slope = ((p - np.eye(CLASSES)[y]).T @ wide / len(x)).ravel()
        middle = p[:, :, None] * np.eye(CLASSES) - p[:, :, None] * p[:, None, :]
        curve = np.einsum("nij,na,nb->iajb", middle, wide, wide) / len(x)
        step = np.linalg.lstsq(curve.reshape(15, 15), slope, rcond=1e-10)[0].reshape(3, 5)
        head = head.plus(Head(step[:, :4], step[:, 4]), -1.0)
    return head


def test_from_an_optimum_the_step_goes_where_retraining_ends() -> None:
    # Labels drawn from a softmax model: there the empirical Fisher matrix is near the Hessian.
    rng = np.random.default_rng(6)
    x = rng.normal(size=(3000, FEATURES)).astype(np.float32).astype(np.float64)
    chances = softmax(x @ rng.normal(size=(FEATURES, CLASSES)))
    y = (chances.cumsum(1) < rng.random((len(x), 1))).sum(1).astype(np.int64)
    y[:60] = (y[:60] + 1) % CLASSES  # or there would be little to forget
    trained, retrained = optimum(x, y), optimum(x[60:], y[60:])
    weights = {
        "head.bias": torch.from_numpy(trained.b).float(),
        "head.weight": torch.from_numpy(trained.w).float(),
    }
    clients = {
        name: ClientData(torch.from_numpy(x[part]).float(), torch.from_numpy(y[part]))
        for name, part in (("gone", slice(0, 60)), ("stays", slice(60, None)))
    }
    request = UnlearningRequest(frozenset({"gone"}))
    case = local_case(NETWORK, weights, request, CONFIG, clients)
    found = WoodFisher(damping=1e-4, samples=3000).run(case)
    left = np.linalg.norm(Head.of(found.weights).vector() - retrained.vector())
    before = np.linalg.norm(trained.vector() - retrained.vector())
    assert before > 0.1
    assert left < 0.25 * before


def test_a_matrix_of_gradients_beyond_the_memory_is_refused_with_what_fits() -> None:
    parameters = 15
    with pytest.raises(RefusedError, match="at most 3 samples do; lower samples"):
        WoodFisher(memory=4 * parameters * 3).run(make_case())
    assert (
        WoodFisher(memory=4 * parameters * 3, samples=3)
        .run(make_case())
        .notes["fisher.samples"]
        == "3"
    )


def test_a_guard_halves_the_step_on_validation_rows() -> None:
    method = WoodFisher(scale=64.0, damping=0.01, guard=StepGuard(rise=0.05, trials=20))
    with pytest.raises(UnmetNeedError, match="validation"):
        method.run(make_case())
    x, y = pooled("retained")
    rows = ClientData(torch.from_numpy(x).float(), torch.from_numpy(y))
    judge = held_out(NETWORK, rows)
    found = method.run(make_case(validation=judge))
    assert judge(found.weights).loss <= judge(WEIGHTS).loss + 0.05
    assert 0 < float(found.notes["step.used"]) < 64
    assert bits(found.weights) != bits(WoodFisher(64.0, 0.01).run(make_case()).weights)
    assert found.work.flops > WoodFisher(64.0, 0.01).run(make_case()).work.flops


def test_fewer_samples_are_drawn_by_the_seed() -> None:
    notes = WoodFisher(samples=8).run(make_case()).notes
    assert notes["fisher.samples"] == "8"
    assert WoodFisher().run(make_case(config=CONFIG)).notes["fisher.samples"] == "23"
