"""Gradients and products against matrices that are formed whole, in float64."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.func import functional_call, jacrev
from torch.nn import functional

from tests.workers.training.fedavg.small import CLIENTS, LOCAL, NETWORK, ROWS
from workers.errors import RefusedError
from workers.training.fedavg.base import ClientData, ClientUpdate, Operation, RoundTask
from workers.training.fedavg.client.curvature import operation_flops, some_rows
from workers.training.fedavg.client.flops import training_flops
from workers.training.fedavg.client.respond import respond
from workers.training.fedavg.config import LocalConfig
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.messages import decode_task, encode_task
from workers.training.fedavg.rounds import collect, make_tasks
from workers.training.fedavg.server import weighted_mean
from workers.training.networks.registry import Network, network
from workers.training.networks.weights import Weights, from_vector, initial_weights, to_vector

WEIGHTS = initial_weights(NETWORK, 0)
SMALL = replace(LOCAL, batch_size=5)
TINY = network("vit-lite", {"channels": 1, "height": 4, "width": 4, "patch": 2, "layers": 1, "embedding": 4, "heads": 2, "classes": 3})  # fmt: skip
IMAGES = ClientData(torch.sin(torch.arange(7 * 16.0)).view(7, 1, 4, 4), torch.arange(7) % 3)


def vector_for(named: Network, seed: int = 5) -> dict[str, torch.Tensor]:
    return {name: weight - 0.1 for name, weight in initial_weights(named, seed).items()}


def dense(
    named: Network, weights: Weights, data: ClientData, operation: Operation
) -> np.ndarray:
    """The whole gradient or matrix in float64: the Hessian by central differences.

    Not by jacrev of jacrev: in torch 2.13 that is wrong through a layer norm (by 60 %).
    """
    module = named.build(0).double()
    point = to_vector(weights).double()
    shapes = named.tensors()

    def logits_at(flat: torch.Tensor) -> torch.Tensor:
        parts, start = {}, 0
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            parts[name] = flat[start : start + size].view(shape)
            start += size
        out: torch.Tensor = functional_call(module, parts, (data.inputs.double(),))
        return out

    def loss_at(flat: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits_at(flat), data.targets)

    if operation == "gradient":
        return np.asarray(jacrev(loss_at)(point))
    if operation == "hessian":
        steps = 1e-5 * torch.eye(len(point), dtype=torch.float64)
        rows = [slope(loss_at, point + e) - slope(loss_at, point - e) for e in steps]
        return np.asarray(torch.stack(rows)) / 2e-5
    jacobian = jacrev(logits_at)(point)
    p = logits_at(point).softmax(1)
    inner = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    matrix = torch.einsum("nia,nij,njb->ab", jacobian, inner, jacobian) / len(data)
    return np.asarray(matrix.detach())


def slope(loss: Callable[[torch.Tensor], torch.Tensor], at: torch.Tensor) -> torch.Tensor:
    point = at.clone().requires_grad_()
    return torch.autograd.grad(loss(point), point)[0]


def asked(named: Network, operation: Operation, data: ClientData) -> torch.Tensor:
    vector = None if operation == "gradient" else vector_for(named)
    weights = initial_weights(named, 0)
    task = make_tasks(
        named, weights, ["a"], SMALL, round=1, seed=0, operation=operation, vector=vector
    )[0]
    answer = respond(decode_task(encode_task(task)), data)
    assert answer.samples == len(data)
    assert answer.steps == -(-len(data) // 5)
    return to_vector(answer.delta)


@pytest.mark.parametrize("operation", ["gradient", "hessian", "gauss-newton"])
@pytest.mark.parametrize(
    ("named", "data"), [(NETWORK, CLIENTS["bert"]), (TINY, IMAGES)], ids=["logistic", "vit"]
)
def test_products_are_those_of_the_whole_matrix(
    named: Network, data: ClientData, operation: Operation
) -> None:
    matrix = dense(named, initial_weights(named, 0), data, operation)
    wanted = matrix
    if operation != "gradient":
        wanted = matrix @ to_vector(vector_for(named)).double().numpy()
    got = asked(named, operation, data).numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())
    if operation == "gauss-newton":
        assert np.linalg.eigvalsh(matrix).min() > -1e-12


def test_the_two_matrices_differ_where_the_network_is_not_linear() -> None:
    assert torch.allclose(
        asked(NETWORK, "hessian", CLIENTS["bert"]),
        asked(NETWORK, "gauss-newton", CLIENTS["bert"]),
        atol=1e-6,
    )
    gap = asked(TINY, "hessian", IMAGES) - asked(TINY, "gauss-newton", IMAGES)
    assert float(gap.norm()) > 0.05 * float(asked(TINY, "hessian", IMAGES).norm())


@pytest.mark.parametrize("operation", ["gradient", "hessian"])
def test_the_mean_over_clients_is_that_over_all_rows(operation: Operation) -> None:
    vector = None if operation == "gradient" else vector_for(NETWORK)
    tasks = make_tasks(
        NETWORK, WEIGHTS, ROWS, SMALL, round=1, seed=0, operation=operation, vector=vector
    )
    found = collect(tasks, InProcess(CLIENTS), rows=ROWS)
    everyone = ClientData(
        torch.cat([data.inputs for data in CLIENTS.values()]),
        torch.cat([data.targets for data in CLIENTS.values()]),
    )
    matrix = dense(NETWORK, WEIGHTS, everyone, operation)
    if vector is not None:
        matrix = matrix @ to_vector(vector).double().numpy()
    mean = torch.cat([part.flatten() for part in weighted_mean(found.updates).values()])
    np.testing.assert_allclose(mean.numpy(), matrix, rtol=1e-4, atol=1e-6)
    assert found.work.steps == 2 + 3 + 1


def product_of(
    data: ClientData, share: float, *, seed: int = 0, round: int = 1
) -> ClientUpdate:
    task = make_tasks(
        NETWORK,
        WEIGHTS,
        ["a"],
        SMALL,
        round=round,
        seed=seed,
        operation="gauss-newton",
        vector=vector_for(NETWORK),
        share=share,
    )[0]
    return respond(decode_task(encode_task(task)), data)


def test_a_share_of_the_rows_is_drawn_by_the_seed_and_the_same_in_every_round() -> None:
    data = CLIENTS["bert"]
    alone = [product_of(data.only(torch.tensor([row])), 1.0) for row in range(12)]
    seen = set()
    for seed in range(60):
        first = product_of(data, 1 / 12, seed=seed)
        vector = to_vector(first.delta)
        (row,) = [i for i, one in enumerate(alone) if torch.equal(to_vector(one.delta), vector)]
        seen.add(row)
        assert first.loss == alone[row].loss
        assert (first.samples, first.steps, first.flops) == (12, 1, alone[row].flops)
        again = product_of(data, 1 / 12, seed=seed, round=9)
        assert torch.equal(to_vector(again.delta), vector)
    assert seen == set(range(12))


def test_a_share_is_rounded_up_and_the_whole_is_all_rows_whatever_the_seed() -> None:
    data = CLIENTS["bert"]
    assert [len(some_rows(12, share, 0)) for share in (1e-9, 0.25, 0.26, 1.0)] == [1, 3, 4, 12]
    assert len(set(some_rows(12, 0.5, 3).tolist())) == 6
    whole = to_vector(product_of(data, 1.0).delta)
    assert torch.equal(whole, to_vector(product_of(data, 1.0, seed=5).delta))
    matrix = dense(NETWORK, WEIGHTS, data, "gauss-newton")
    wanted = matrix @ to_vector(vector_for(NETWORK)).double().numpy()
    np.testing.assert_allclose(whole.numpy(), wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan"), 1])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(RefusedError, match="share"):
        product_of(CLIENTS["bert"], share)
    with pytest.raises(RefusedError, match="only products"):
        make_tasks(NETWORK, WEIGHTS, ["a"], SMALL, round=1, seed=0, share=0.5)


@pytest.mark.parametrize("name", ["simple-cnn", "resnet18", "vit-lite"])
def test_every_kind_of_layer_has_both_products(name: str) -> None:
    shape = {"height": 8, "width": 8, "channels": 1, "classes": 3}
    named = network(name, shape)
    data = ClientData(torch.sin(torch.arange(2 * 64.0)).view(2, 1, 8, 8), torch.tensor([0, 2]))
    vector = vector_for(named)
    flat = to_vector(vector).double()
    answers = {}
    operations: tuple[Operation, ...] = ("hessian", "gauss-newton")
    for operation in operations:
        answers[operation] = asked(named, operation, data).double()
        assert bool(torch.isfinite(answers[operation]).all())
    assert float(flat @ answers["gauss-newton"]) > 0  # vᵀGv, convex by construction


def test_operations_are_counted() -> None:
    named = network("simple-cnn")
    gradient = operation_flops(named, "cross-entropy", "gradient")
    assert gradient == training_flops(named)
    assert 1.5 * gradient < operation_flops(named, "cross-entropy", "hessian") < 4 * gradient
    assert gradient < operation_flops(named, "cross-entropy", "gauss-newton") < 4 * gradient


def test_a_product_needs_a_convex_loss_and_its_vector() -> None:
    config = LocalConfig(loss="cross-entropy+dice")
    vector = vector_for(NETWORK)
    dice = make_tasks(
        NETWORK,
        WEIGHTS,
        ["a"],
        config,
        round=1,
        seed=0,
        operation="gauss-newton",
        vector=vector,
    )[0]
    with pytest.raises(RefusedError, match="convex"):
        respond(dice, CLIENTS["bert"])

    def task(operation: str, vector: Weights | None) -> RoundTask:
        return replace(dice, operation=operation, vector=vector)  # type: ignore[arg-type]

    for operation, given in (
        ("hessian", None),
        ("train", vector),
        ("gradient", vector),
        ("evaluate", vector),
    ):
        with pytest.raises(RefusedError, match="vector"):
            task(operation, given)
    with pytest.raises(RefusedError, match="unknown operation"):
        task("invert", None)
    with pytest.raises(RefusedError, match="shape"):
        task("hessian", {**vector, "head.bias": torch.zeros(9)})
    nan = from_vector(torch.full_like(to_vector(vector), torch.nan), NETWORK)
    with pytest.raises(RefusedError, match="NaN"):
        task("hessian", nan)
