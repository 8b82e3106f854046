"""A loss without a step: the clients' answers, their cost, and screened-out ones."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.workers.training.fedavg.small import CLIENTS, LOCAL, NETWORK, ROWS, Meddling
from workers.training.fedavg.base import ClientData, ClientUpdate, Operation, RoundTask
from workers.training.fedavg.client.respond import respond
from workers.training.fedavg.config import LocalConfig, Loss
from workers.training.fedavg.evaluate import evaluate, logits_of
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.messages import decode_update, encode_update
from workers.training.fedavg.rounds import CollectedRound, collect, make_tasks, screen
from workers.training.networks.registry import network
from workers.training.networks.weights import initial_weights

WEIGHTS = initial_weights(NETWORK, 0)


def tasks(
    operation: Operation = "evaluate", config: LocalConfig = LOCAL, **more: Any
) -> list[RoundTask]:
    return make_tasks(
        NETWORK, WEIGHTS, ROWS, config, round=1, seed=0, operation=operation, **more
    )


def asked(operation: Operation) -> CollectedRound:
    return collect(tasks(operation), InProcess(CLIENTS), rows=ROWS)


def test_the_answer_is_the_loss_and_the_number_of_right_rows() -> None:
    for client, update in asked("evaluate").updates.items():
        data = CLIENTS[client]
        inputs, weight = data.inputs.double().numpy(), WEIGHTS["head.weight"].double().numpy()
        z = inputs @ weight.T + WEIGHTS["head.bias"].double().numpy()
        picked = z[np.arange(len(z)), data.targets.numpy()]
        wanted = float(np.mean(np.log(np.exp(z).sum(1)) - picked))
        assert update.loss == pytest.approx(wanted, rel=1e-5)
        assert update.correct == int((z.argmax(1) == data.targets.numpy()).sum())
        assert (update.delta, update.steps, update.samples) == ({}, 0, ROWS[client])


def test_the_loss_has_the_bits_of_the_gradients_at_a_third_of_the_work() -> None:
    alone, derived = asked("evaluate"), asked("gradient")
    for client, update in alone.updates.items():
        assert update.loss == derived.updates[client].loss
    assert alone.loss == derived.loss
    everyone = 24 * 2 * 4 * 3  # rows, a multiply and an add, 4 features, 3 classes
    assert (alone.work.flops, alone.work.steps, alone.work.rounds) == (everyone, 0, 1)
    named = network("simple-cnn", {"height": 8, "width": 8})
    image = ClientData(torch.zeros(1, 1, 8, 8), torch.zeros(1, dtype=torch.int64))
    flops = {}
    kinds: tuple[Operation, ...] = ("evaluate", "gradient")
    for kind in kinds:
        task = make_tasks(
            named, initial_weights(named, 0), "a", LOCAL, round=1, seed=0, operation=kind
        )[0]
        answer = respond(task, image)
        flops[kind] = answer.flops
        if kind == "evaluate":
            assert len(encode_update(answer)) < 1000  # no tensor, whatever the model's size
    assert 2.5 < flops["gradient"] / flops["evaluate"] < 3.0


def test_masks_are_counted_by_pixels_and_dice_is_part_of_the_loss() -> None:
    named = network("res-unet", {"height": 16, "width": 16, "features": 4, "classes": 2})
    weights = initial_weights(named, 0)
    channels = named.input_shape[0]
    inputs = torch.sin(torch.arange(3 * channels * 256.0)).view(3, channels, 16, 16)
    data = ClientData(inputs, (torch.arange(3 * 256).view(3, 16, 16) // 5) % 2)
    kinds: tuple[Loss, ...] = ("cross-entropy", "cross-entropy+dice")
    for loss in kinds:
        config = LocalConfig(batch_size=8, loss=loss)
        task = make_tasks(named, weights, "a", config, round=1, seed=0, operation="evaluate")[0]
        answer = respond(task, data)
        assert screen(task, answer, samples=3) is None
        right = evaluate(named, weights, data)
        assert answer.correct == round(right.accuracy * 3 * 256)
        logits = logits_of(named, weights, inputs)
        entropy = float(functional.cross_entropy(logits, data.targets))
        if loss == "cross-entropy":
            assert answer.loss == pytest.approx(entropy, rel=1e-5)
        else:
            assert entropy + 0.1 < answer.loss < entropy + 1


LIES: dict[str, dict[str, Any]] = {
    "a tensor": {"delta": {"head.bias": torch.zeros(3)}},
    "a model": {"delta": WEIGHTS},
    "a step": {"steps": 1},
    "no count": {"correct": None},
    "more right than rows": {"correct": 13},
    "fewer than none": {"correct": -1},
    "NaN": {"loss": float("nan")},
    "other rows": {"samples": 11},
}


@pytest.mark.parametrize("what", LIES)
def test_an_answer_of_another_kind_does_not_count(what: str) -> None:
    engine = Meddling({"bert": lambda update: replace(update, **LIES[what])})
    found = collect(tasks(), engine, rows=ROWS)
    assert [fault.client for fault in found.faults] == ["bert"]
    assert set(found.updates) == {"anna", "cleo"}


def test_training_has_no_count_of_right_rows() -> None:
    engine = Meddling({"bert": lambda update: replace(update, correct=3)})
    found = collect(tasks("train"), engine, rows=ROWS)
    assert [fault.reason for fault in found.faults] == ["mismatch"]


def test_the_count_comes_back_from_its_message() -> None:
    update: ClientUpdate = asked("evaluate").updates["bert"]
    back = decode_update(encode_update(update))
    assert (back.correct, back.delta, back.loss) == (update.correct, {}, update.loss)
