"""A client's training against the same arithmetic written out in NumPy float64."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.workers.training.fedavg.small import CLIENTS, LOCAL, NETWORK
from workers.errors import RefusedError
from workers.training.fedavg.base import ClientData, ClientUpdate, RoundTask
from workers.training.fedavg.client.local import batches, crop_flip, train_locally
from workers.training.fedavg.config import LocalConfig, local_from_json, to_json
from workers.training.fedavg.rounds import make_tasks
from workers.training.fedavg.seeds import stream
from workers.training.networks.registry import network
from workers.training.networks.weights import initial_weights, norm

WEIGHTS = initial_weights(NETWORK, 0)
Float = NDArray[np.float64]


def task(config: LocalConfig = LOCAL, round: int = 1, seed: int = 5) -> RoundTask:
    return make_tasks(NETWORK, WEIGHTS, ["bert"], config, round=round, seed=seed)[0]


def by_hand(config: LocalConfig, round: int) -> tuple[Float, Float, float]:
    """Multinomial logistic regression, its gradient from the formula, plain SGD."""
    data = CLIENTS["bert"]
    inputs = data.inputs.numpy().astype(np.float64)
    wanted = np.eye(3)[data.targets.numpy()]
    w = WEIGHTS["head.weight"].numpy().astype(np.float64)
    b = WEIGHTS["head.bias"].numpy().astype(np.float64)
    buffers, losses = [np.zeros_like(w), np.zeros_like(b)], []
    for rows in batches(len(data), config, task(config, round).seed):
        x, t = inputs[rows.numpy()], wanted[rows.numpy()]
        logits = x @ w.T + b
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses += (-np.log((p * t).sum(1))).tolist()
        gradients = [(p - t).T @ x / len(x), (p - t).mean(0)]
        if config.clip_norm:
            length = np.sqrt(sum((g**2).sum() for g in gradients))
            gradients = [g * min(1, config.clip_norm / length) for g in gradients]
        rate = config.learning_rate * config.decay ** (round - 1)
        for i, (weight, gradient) in enumerate(zip((w, b), gradients, strict=True)):
            gradient = gradient + config.weight_decay * weight
            buffers[i] = config.momentum * buffers[i] + gradient
            weight -= rate * buffers[i]
    return w, b, float(np.mean(losses))


@pytest.mark.parametrize(
    ("config", "round"),
    [
        (LOCAL, 1),
        (replace(LOCAL, momentum=0.9), 1),
        (replace(LOCAL, weight_decay=0.1, momentum=0.5), 1),
        (replace(LOCAL, decay=0.9), 7),
        (replace(LOCAL, clip_norm=0.3), 1),
        (replace(LOCAL, epochs=0.5), 1),
        (replace(LOCAL, batch_size=100, epochs=3), 2),
    ],
)
def test_it_is_stochastic_gradient_descent(config: LocalConfig, round: int) -> None:
    update = train_locally(task(config, round), CLIENTS["bert"])
    w, b, loss = by_hand(config, round)
    got = WEIGHTS["head.weight"] + update.delta["head.weight"]
    np.testing.assert_allclose(got.numpy(), w, rtol=1e-5, atol=1e-6)
    got = WEIGHTS["head.bias"] + update.delta["head.bias"]
    np.testing.assert_allclose(got.numpy(), b, rtol=1e-5, atol=1e-6)
    assert update.loss == pytest.approx(loss, rel=1e-5)
    assert update.samples == 12


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_the_first_adaptive_step_has_the_rate_as_its_length(
    optimizer: Literal["adam", "adamw"],
) -> None:
    config = replace(LOCAL, epochs=1, batch_size=99, optimizer=optimizer, learning_rate=1e-3)
    update = train_locally(task(config), CLIENTS["bert"])
    steps = torch.cat([part.abs().flatten() for part in update.delta.values()])
    torch.testing.assert_close(steps, torch.full_like(steps, 1e-3), rtol=1e-2, atol=0)


def test_weight_decay_is_decoupled_for_adamw_alone() -> None:
    quiet = ClientData(torch.zeros(4, 4), torch.tensor([0, 1, 2, 0]))
    delta = {}
    for optimizer in ("adam", "adamw"):
        config = LocalConfig(
            optimizer=optimizer,
            learning_rate=0.01,
            weight_decay=0.1,
            batch_size=9,
        )
        delta[optimizer] = train_locally(task(config), quiet).delta["head.weight"]
    # No gradient reaches the matrix: adam turns the decay into a step of full length.
    torch.testing.assert_close(delta["adamw"], -1e-3 * WEIGHTS["head.weight"])
    torch.testing.assert_close(delta["adam"].abs(), torch.full((3, 4), 0.01), rtol=1e-3, atol=0)


def drawn(samples: int, config: LocalConfig, seed: int = 1) -> list[list[int]]:
    return [rows.tolist() for rows in batches(samples, config, seed)]


def test_every_epoch_sees_every_row_once_in_a_new_order() -> None:
    config = LocalConfig(epochs=3, batch_size=4)
    steps = drawn(10, config)
    assert [len(step) for step in steps] == [4, 4, 2] * 3
    epochs = [[row for step in steps[i : i + 3] for row in step] for i in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert drawn(10, config) == steps
    assert drawn(10, config, seed=2) != steps


@pytest.mark.parametrize(("epochs", "steps"), [(0.5, 2), (1.5, 5), (0.01, 1), (2, 6)])
def test_epochs_may_be_cut(epochs: float, steps: int) -> None:
    cut = drawn(10, LocalConfig(epochs=epochs, batch_size=4))
    assert cut == drawn(10, LocalConfig(epochs=9, batch_size=4))[:steps]


def same(one: ClientUpdate, two: ClientUpdate) -> bool:
    return all(torch.equal(one.delta[name], two.delta[name]) for name in one.delta)


def test_the_seed_decides_and_the_global_one_does_not() -> None:
    torch.manual_seed(1)
    first = train_locally(task(), CLIENTS["bert"])
    torch.manual_seed(2)
    assert same(first, train_locally(task(), CLIENTS["bert"]))
    assert not same(first, train_locally(task(seed=6), CLIENTS["bert"]))


def test_a_crop_is_a_shift_of_the_image() -> None:
    images = torch.arange(1.0, 1 + 50 * 2 * 6 * 5).view(50, 2, 6, 5)
    moved = crop_flip(images, stream(0, "test"))
    assert moved.shape == images.shape
    assert torch.equal(moved, crop_flip(images, stream(0, "test")))
    shifts = set()
    for before, after in zip(images, moved, strict=True):
        found = [
            (top, left, flip)
            for top in range(9)
            for left in range(9)
            for flip in (False, True)
            if torch.equal(after, reference(before, top, left, flip))
        ]
        assert found  # an image shifted out of sight fits several
        shifts.add(found[0])
    assert len(shifts) > 30


def reference(image: torch.Tensor, top: int, left: int, flip: bool) -> torch.Tensor:
    c, h, w = image.shape
    canvas = torch.zeros(c, h + 8, w + 8)
    canvas[:, 4 : 4 + h, 4 : 4 + w] = image
    crop = canvas[:, top : top + h, left : left + w]
    return crop.flip(2) if flip else crop


def test_images_can_be_augmented_and_the_precision_shows() -> None:
    named = network("simple-cnn", {"height": 8, "width": 8})
    inputs = torch.linspace(-1, 1, 6 * 64).view(6, 1, 8, 8)
    data = ClientData(inputs, torch.arange(6))
    weights = initial_weights(named, 0)
    plain = LocalConfig(batch_size=3, learning_rate=0.05)
    updates = [
        train_locally(make_tasks(named, weights, ["a"], config, round=1, seed=1)[0], data)
        for config in (
            plain,
            replace(plain, augment="crop-flip"),
            replace(plain, precision="bfloat16"),
        )
    ]
    assert not same(updates[0], updates[1])
    assert not same(updates[0], updates[2])
    gap = {name: updates[0].delta[name] - updates[2].delta[name] for name in weights}
    assert norm(gap) < 0.1 * norm(updates[0].delta)
    with pytest.raises(RefusedError, match="only images"):
        train_locally(task(replace(LOCAL, augment="crop-flip")), CLIENTS["bert"])


MISFITS = [
    ("width", ClientData(torch.zeros(2, 5), torch.zeros(2, dtype=torch.int64)), "shape"),
    ("a class too many", ClientData(torch.zeros(2, 4), torch.tensor([0, 3])), "classes"),
    ("a negative class", ClientData(torch.zeros(2, 4), torch.tensor([0, -1])), "classes"),
    (
        "masks",
        ClientData(torch.zeros(2, 4), torch.zeros(2, 1, 1, dtype=torch.int64)),
        "each pixel",
    ),
]


@pytest.mark.parametrize(("what", "data", "message"), MISFITS, ids=[m[0] for m in MISFITS])
def test_rows_that_do_not_fit(what: str, data: ClientData, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        train_locally(task(), data)


ODD_ROWS = [
    (torch.zeros(2, 4).double(), torch.zeros(2, dtype=torch.int64)),
    (torch.zeros(2, 4), torch.zeros(2)),
    (torch.zeros(2), torch.zeros(2, dtype=torch.int64)),
    (torch.zeros(2, 4), torch.zeros(2, 2, dtype=torch.int64)),
    (torch.zeros(2, 4), torch.zeros(3, dtype=torch.int64)),
    (torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)),
    (torch.full((2, 4), torch.nan), torch.zeros(2, dtype=torch.int64)),
]


@pytest.mark.parametrize(("inputs", "targets"), ODD_ROWS)
def test_odd_rows_are_refused(inputs: torch.Tensor, targets: torch.Tensor) -> None:
    with pytest.raises(RefusedError):
        ClientData(inputs, targets)


ODD_CONFIGS = [
    {"epochs": 0},
    {"epochs": float("nan")},
    {"epochs": "1"},
    {"epochs": True},
    {"batch_size": 0},
    {"batch_size": 2.0},
    {"optimizer": "lion"},
    {"learning_rate": -1},
    {"learning_rate": float("inf")},
    {"decay": 0},
    {"decay": 1.5},
    {"momentum": 1},
    {"momentum": 0.9, "optimizer": "adam"},
    {"weight_decay": -0.1},
    {"clip_norm": -1},
    {"loss": "hinge"},
    {"augment": "cutout"},
    {"precision": "float16"},
]


@pytest.mark.parametrize("fields", ODD_CONFIGS)
def test_odd_configurations_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(RefusedError, match=next(iter(fields))):
        LocalConfig(**fields)  # type: ignore[arg-type]


def test_a_configuration_has_one_spelling() -> None:
    config = LocalConfig(epochs=5, learning_rate=0.1, decay=0.998)
    assert to_json(config) == to_json(LocalConfig(epochs=5.0, learning_rate=0.1, decay=0.998))
    assert local_from_json(to_json(config)) == config


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 1.0},
        {"epochs": "0x2p-1"},
        {"epochs": "nan"},
        {"batch_size": "0x1p+0"},
        {"surprise": 1},
        {"optimizer": ["sgd"]},
    ],
)
def test_another_spelling_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(RefusedError):
        local_from_json({**to_json(LOCAL), **change})
    with pytest.raises(RefusedError):
        local_from_json([])


def test_an_epochs_order_is_put_on_the_device_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy at each step would have a GPU wait for it."""
    moved: list[int] = []
    plain = torch.Tensor.to

    def to(tensor: torch.Tensor, *given: object, **more: object) -> torch.Tensor:
        moved.append(len(tensor))
        return plain(tensor, *given, **more)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch.Tensor, "to", to)
    found = list(batches(10, LocalConfig(epochs=2, batch_size=4), 0, "meta"))
    assert [len(at) for at in found] == [4, 4, 2, 4, 4, 2]
    assert {at.device.type for at in found} == {"meta"}
    assert moved == [10, 10]
