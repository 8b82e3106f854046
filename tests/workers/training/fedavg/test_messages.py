"""Round messages and checkpoints: one canonical form each, and nothing else is read."""

import struct
import time
from collections.abc import Callable
from dataclasses import replace
from math import isnan
from typing import Any

import pytest
import torch

from tests.workers.training.fedavg.small import CLIENTS, CONFIG, LOCAL, NETWORK, ROWS
from workers.arrays import decode_tensors, encode_tensors
from workers.training.fedavg.base import Fault, Work
from workers.training.fedavg.checkpoint import Checkpoint, RoundRecord, pin_of
from workers.training.fedavg.config import ServerConfig, to_json
from workers.training.fedavg.errors import CheckpointError, MessageError
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.messages import (
    decode_task,
    decode_update,
    encode_task,
    encode_update,
)
from workers.training.fedavg.rounds import make_tasks, train
from workers.training.fedavg.server import initial_state
from workers.training.networks.registry import network
from workers.training.networks.weights import encode_weights, initial_weights, moved

WEIGHTS = initial_weights(NETWORK, 0)
FILE = encode_weights(NETWORK.id, NETWORK.parameters, WEIGHTS)
TASK = make_tasks(NETWORK, WEIGHTS, ["bert"], LOCAL, round=2, seed=1)[0]
UPDATE = InProcess(CLIENTS).run([TASK]).updates["bert"]


def test_a_task_comes_back() -> None:
    for inline in (True, False):
        data = encode_task(TASK, inline=inline)
        back = decode_task(data, None if inline else FILE)
        assert encode_task(back, inline=inline) == data
        assert (back.client, back.round, back.config, back.seed, back.base, back.network) == (
            TASK.client, TASK.round, TASK.config, TASK.seed, TASK.base, TASK.network
        )  # fmt: skip
        assert all(torch.equal(back.weights[name], WEIGHTS[name]) for name in WEIGHTS)
    assert len(encode_task(TASK, inline=False)) < len(encode_task(TASK))


def test_a_product_carries_its_vector_with_or_without_the_weights() -> None:
    task = replace(TASK, operation="hessian", vector=moved(WEIGHTS, WEIGHTS), share=0.3)
    for weights in (None, FILE):
        back = decode_task(encode_task(task, inline=weights is None), weights)
        assert (back.operation, back.share) == ("hessian", 0.3)
        assert back.vector is not None
        assert torch.equal(back.vector["head.bias"], 2 * WEIGHTS["head.bias"])
    bad = {**WEIGHTS, "head.bias": torch.zeros(9)}
    arrays, fields = decode_tensors(encode_task(task))
    arrays["vector/head.bias"] = bad["head.bias"].numpy()
    with pytest.raises(MessageError):
        decode_task(encode_tensors(arrays, fields))


def test_an_update_comes_back_even_when_it_is_nonsense() -> None:
    data = encode_update(UPDATE)
    assert encode_update(decode_update(data)) == data
    delta = {**UPDATE.delta, "more": torch.tensor([torch.nan])}
    nonsense = replace(UPDATE, delta=delta, loss=float("nan"), client="ünïcode \0")
    back = decode_update(encode_update(nonsense))
    assert isnan(back.loss)
    assert back.client == "ünïcode \0"
    assert isnan(float(back.delta["more"]))


@pytest.mark.parametrize("seconds", [0.0, 5.0, 1 / 3, 1e-300, 123456.789])
def test_the_length_of_a_message_does_not_depend_on_the_clock(seconds: float) -> None:
    data = encode_update(replace(UPDATE, seconds=seconds))
    assert len(data) == len(encode_update(UPDATE))
    assert decode_update(data).seconds == seconds


def test_equal_rounds_send_equally_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([i * i / 3 for i in range(1000)])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    config = replace(CONFIG, rounds=2)
    works = [train(NETWORK, ROWS, config, InProcess(CLIENTS)).work for _ in range(4)]
    assert works == [works[0]] * 4
    assert len({work.seconds for work in works}) > 1


def changed(data: bytes, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> bytes:
    arrays, fields = decode_tensors(data)
    change(arrays, fields)
    return encode_tensors(arrays, fields)


def task_with(**fields: Any) -> bytes:
    return changed(encode_task(TASK), lambda _, found: found.update(fields))


def update_with(**fields: Any) -> bytes:
    return changed(encode_update(UPDATE), lambda _, found: found.update(fields))


BAD_TASKS = {
    "empty": b"",
    "cut": encode_task(TASK)[:-1],
    "without its weights": encode_task(TASK, inline=False),
    "an update": encode_update(UPDATE),
    "a model file": FILE,
    "round 0": task_with(round=0),
    "round true": task_with(round=True),
    "round 2.0": task_with(round=2.0),
    "client 7": task_with(client=7),
    "seed -1": task_with(seed=-1),
    "seed too large": task_with(seed=2**63),
    "one field more": task_with(hint="x"),
    "one field less": changed(encode_task(TASK), lambda _, f: f.pop("seed")),
    "another base": task_with(base="0" * 64),
    "another network": task_with(network="simple-cnn"),
    "must be float32 of shape": task_with(parameters={"classes": 3, "features": 5}),
    "a configuration in another spelling": task_with(config={**to_json(LOCAL), "epochs": 2.0}),
    "no configuration": task_with(config=None),
    "other weights": changed(encode_task(TASK), lambda a, _: a["weights/head.bias"].fill(1)),
    "a share of training": task_with(share=(0.5).hex()),
    "no share": changed(encode_task(TASK), lambda _, f: f.pop("share")),
    "a share in another spelling": task_with(share="1.0"),
    "a share beyond all": task_with(share=(2.0).hex()),
    "an endless share": task_with(share="0x1p+9999"),
    "an unknown operation": task_with(operation="invert"),
    "a product without a vector": task_with(operation="hessian"),
    "training with a vector": changed(encode_task(TASK), lambda a, _: a.update({"vector/head.bias": a["weights/head.bias"]})),
    "a tensor of no part": changed(encode_task(TASK), lambda a, _: a.update({"more/x": a["weights/head.bias"]})),
    "a tensor without a part": changed(encode_task(TASK), lambda a, _: a.update({"x": a["weights/head.bias"]})),
    "weights that are not finite": changed(encode_task(TASK), lambda a, _: a["weights/head.bias"].fill(float("nan"))),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_TASKS)
def test_other_bytes_are_no_task(what: str) -> None:
    with pytest.raises(MessageError):
        decode_task(BAD_TASKS[what])


def test_a_referenced_file_must_be_the_one_named() -> None:
    other = encode_weights(NETWORK.id, NETWORK.parameters, moved(WEIGHTS, WEIGHTS))
    for file in (other, b"", FILE[:-1]):
        with pytest.raises(MessageError):
            decode_task(encode_task(TASK, inline=False), file)
    with pytest.raises(MessageError):
        decode_task(encode_task(TASK), FILE)  # two sources of weights are one too many


BAD_UPDATES = {
    "empty": b"",
    "cut": encode_update(UPDATE)[:-3],
    "a task": encode_task(TASK),
    "samples -1": update_with(samples=-1),
    "samples as text": update_with(samples="12"),
    "steps true": update_with(steps=True),
    "loss as a number": update_with(loss=0.5),
    "loss in another spelling": update_with(loss="0.5"),
    "loss as a word": update_with(loss="much"),
    "one field more": update_with(hint="x"),
    "base of another type": update_with(base=None),
    "kind": update_with(kind="fedavg-update/1"),
    "loss in capitals": update_with(loss=struct.pack(">d", -1.5).hex().upper()),
    "loss with a space": update_with(loss="bff80000 00000000"),
    "loss too short": update_with(loss="bff80000"),
    "another NaN": update_with(loss="fff8000000000000"),
    "correct true": update_with(correct=True),
    "correct -1": update_with(correct=-1),
    "no word on correct": changed(encode_update(UPDATE), lambda _, f: f.pop("correct")),
}


@pytest.mark.parametrize("what", BAD_UPDATES)
def test_other_bytes_are_no_update(what: str) -> None:
    with pytest.raises(MessageError):
        decode_update(BAD_UPDATES[what])


PIN = pin_of(NETWORK, ROWS, CONFIG, WEIGHTS, "rows")
OTHER_RUNS = {
    "a client less": pin_of(NETWORK, {"anna": 7, "cleo": 5}, CONFIG, WEIGHTS, "rows"),
    "a row less": pin_of(NETWORK, {**ROWS, "bert": 11}, CONFIG, WEIGHTS, "rows"),
    "other rows": pin_of(NETWORK, ROWS, CONFIG, WEIGHTS, "the rows without one"),
    "another seed": pin_of(NETWORK, ROWS, replace(CONFIG, seed=4), WEIGHTS, "rows"),
    "another rate": pin_of(
        NETWORK, ROWS, replace(CONFIG, local=replace(LOCAL, learning_rate=0.1)), WEIGHTS, "rows"
    ),
    "another start": pin_of(NETWORK, ROWS, CONFIG, moved(WEIGHTS, WEIGHTS), "rows"),
}


def test_the_pin_leaves_out_the_length_alone() -> None:
    assert pin_of(NETWORK, ROWS, replace(CONFIG, rounds=99), WEIGHTS, "rows") == PIN
    assert len({PIN, *OTHER_RUNS.values()}) == 1 + len(OTHER_RUNS)


ADAM = ServerConfig("adam")
CHECKPOINT = Checkpoint(
    initial_state(WEIGHTS, ADAM),
    (
        RoundRecord(1, ("a", "b"), (Fault("b", "norm", "9"),), 0.1, Work(1, 2, 3, 4, 5, 0.3)),
        RoundRecord(2, ("a",), (), 1e-300, Work()),
    ),
)
SAVED = CHECKPOINT.encode(PIN)


def saved_with(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> bytes:
    return changed(SAVED, change)


def test_a_checkpoint_comes_back() -> None:
    back = Checkpoint.decode(SAVED, NETWORK, ADAM, PIN)
    assert back.records == CHECKPOINT.records
    assert back.records[0].work.seconds == 0.3
    assert back.encode(PIN) == SAVED


@pytest.mark.parametrize("what", OTHER_RUNS)
def test_a_checkpoint_of_another_run_is_refused(what: str) -> None:
    with pytest.raises(CheckpointError, match="another run"):
        Checkpoint.decode(SAVED, NETWORK, ADAM, OTHER_RUNS[what])


BAD_CHECKPOINTS: dict[str, bytes] = {
    "empty": b"",
    "cut": SAVED[:-1],
    "a model file": FILE,
    "another kind": saved_with(lambda _, f: f.update(kind="x")),
    "a round missing": saved_with(lambda _, f: f["records"].pop(0)),
    "rounds in text": saved_with(lambda _, f: f["records"][0].update(round="1")),
    "a round true": saved_with(lambda _, f: f["records"][0].update(round=True)),
    "a number asked": saved_with(lambda _, f: f["records"][0].update(asked=["a", 7])),
    "a number for a reason": saved_with(lambda _, f: f["records"][0].update(faults=[["b", 7, "9"]])),
    "work in halves": saved_with(lambda _, f: f["records"][0].update(work=[0.5] * 5 + ["0x0p0"])),
    "a work too short": saved_with(lambda _, f: f["records"][0].update(work=[1, "0x0.0p+0"])),
    "no loss": saved_with(lambda _, f: f["records"][0].pop("loss")),
    "a fault too long": saved_with(lambda _, f: f["records"][0].update(faults=[["a", "b", "c", "d"]])),
    "a tensor of no part": saved_with(lambda a, _: a.update({"extra/x": a["weights/head.bias"]})),
    "a weight missing": saved_with(lambda a, _: a.pop("weights/head.bias")),
    "a moment missing": saved_with(lambda a, _: a.pop("variance/head.bias")),
    "a moment of must be float32 of shape": saved_with(lambda a, _: a.update({"variance/head.bias": a["variance/head.bias"][:1]})),
    "a weight that is not finite": saved_with(lambda a, _: a["weights/head.bias"].fill(float("inf"))),
    "a moment that is not finite": saved_with(lambda a, _: a["momentum/head.bias"].fill(float("nan"))),
    "moments where there are none": Checkpoint(initial_state(WEIGHTS, ServerConfig()), ()).encode(PIN),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_CHECKPOINTS)
def test_a_damaged_checkpoint_is_refused(what: str) -> None:
    with pytest.raises(CheckpointError):
        Checkpoint.decode(BAD_CHECKPOINTS[what], NETWORK, ADAM, PIN)


def test_no_training_goes_on_from_weights_that_saw_other_clients() -> None:
    saved: list[bytes] = []
    train(NETWORK, ROWS, CONFIG, InProcess(CLIENTS), save=saved.append)
    remaining = {client: rows for client, rows in ROWS.items() if client != "bert"}
    with pytest.raises(CheckpointError, match="another run"):
        train(NETWORK, remaining, CONFIG, InProcess(CLIENTS), resume=saved[-1])
    with pytest.raises(CheckpointError, match="another run"):
        train(NETWORK, ROWS, CONFIG, InProcess(CLIENTS), resume=saved[-1], data="without a row")
    with pytest.raises(CheckpointError):
        train(network("logistic", {"features": 4}), ROWS, CONFIG, InProcess(CLIENTS), resume=saved[-1])  # fmt: skip
