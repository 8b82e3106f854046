"""The engine over nodes gives the bits, the bytes and the faults of the one in this process."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lethe_flower.answers import THREADS, work
from lethe_flower.exchange import Reply
from lethe_flower.run import FlowerEngine
from tests.flower.nodes import FIRST, Nodes, Trouble, write
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS
from workers.errors import RefusedError
from workers.training.fedavg.base import Fault, RoundTask
from workers.training.fedavg.checkpoint import RoundRecord
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.messages import encode_task
from workers.training.fedavg.rounds import Trained, collect, make_tasks, train
from workers.training.networks.weights import initial_weights

NAMES = sorted(CLIENTS)
NODES = {name: FIRST + place for place, name in enumerate(NAMES)}
LOCAL = InProcess(CLIENTS, threads=THREADS)


def tasks(**options: object) -> list[RoundTask]:
    weights = initial_weights(NETWORK, 1)
    return make_tasks(NETWORK, weights, CLIENTS, CONFIG.local, round=1, seed=2, **options)  # type: ignore[arg-type]


def _without_bytes_up(trained: Trained) -> list[RoundRecord]:
    # The seconds in an answer have as many digits as they need.
    return [replace(r, work=replace(r.work, bytes_up=0)) for r in trained.records]


def test_a_training_has_the_bits_of_one_process(tmp_path: Path) -> None:
    engine = FlowerEngine(Nodes(write(tmp_path)), NODES)
    over_nodes = train(NETWORK, ROWS, CONFIG, engine)
    here = train(NETWORK, ROWS, CONFIG, LOCAL)
    assert _without_bytes_up(over_nodes) == _without_bytes_up(here)
    for name, weight in here.weights.items():
        assert torch.equal(over_nodes.weights[name], weight)


@pytest.mark.parametrize("operation", ["gradient", "hessian"])
def test_other_operations_travel_too(tmp_path: Path, operation: str) -> None:
    vector = initial_weights(NETWORK, 9) if operation == "hessian" else None
    asked = tasks(operation=operation, vector=vector)
    there = FlowerEngine(Nodes(write(tmp_path)), NODES).run(asked, timeout=0)
    here = LOCAL.run(asked)
    assert there.updates.keys() == here.updates.keys() == CLIENTS.keys()
    for client, update in here.updates.items():
        assert there.updates[client].loss == update.loss
        for name, part in update.delta.items():
            assert torch.equal(there.updates[client].delta[name], part)


def test_bytes_are_counted_as_in_one_process(tmp_path: Path) -> None:
    there = FlowerEngine(Nodes(write(tmp_path)), NODES).run(tasks(), timeout=0)
    here = LOCAL.run(tasks())
    assert there.bytes_down == here.bytes_down > 0
    assert abs(there.bytes_up - here.bytes_up) <= 8 * len(CLIENTS)


TROUBLES: list[tuple[str, Trouble, Fault]] = [
    ("silent", lambda *_: None, Fault("bert", "no-answer")),
    ("gone", lambda *_: Reply(None, "no-answer", "x"), Fault("bert", "no-answer", "x")),
    (
        "failed",
        lambda *_: Reply(None, "client-error", "MemoryError"),
        Fault("bert", "client-error", "MemoryError"),
    ),
    ("no reason", lambda *_: Reply(None), Fault("bert", "client-error")),
    ("other bytes", lambda *_: Reply(b"\x08" + bytes(7)), Fault("bert", "unreadable")),
    ("the task itself", lambda _, sent: Reply(sent), Fault("bert", "unreadable")),
]


@pytest.mark.parametrize(
    ("trouble", "fault"), [case[1:] for case in TROUBLES], ids=[case[0] for case in TROUBLES]
)
def test_trouble_is_a_fault_of_its_client_only(
    tmp_path: Path, trouble: Trouble, fault: Fault
) -> None:
    nodes = Nodes(write(tmp_path), {NODES["bert"]: trouble})
    answers = FlowerEngine(nodes, NODES).run(tasks(), timeout=0)
    assert answers.faults == [fault]
    assert answers.updates.keys() == {"anna", "cleo"}


def test_a_client_without_a_node_is_not_asked(tmp_path: Path) -> None:
    nodes = Nodes(write(tmp_path))
    known = {name: node for name, node in NODES.items() if name != "cleo"}
    answers = FlowerEngine(nodes, known).run(tasks(), timeout=0)
    assert answers.faults == [Fault("cleo", "no-answer", "unknown here")]
    assert nodes.asked == [("train", frozenset({NODES["anna"], NODES["bert"]}))]
    assert answers.bytes_down == LOCAL.run(tasks()).bytes_down  # it counts what was to be sent


def test_an_answer_under_another_name_does_not_count(tmp_path: Path) -> None:
    """Node of bert answers as anna: the update is bert's by its node, and screened out."""
    configs = write(tmp_path)

    def as_anna(*_: object) -> Reply:
        (task,) = [task for task in tasks() if task.client == "anna"]
        return Reply(work("anna", CLIENTS["anna"], encode_task(task)))

    engine = FlowerEngine(Nodes(configs, {NODES["bert"]: as_anna}), NODES)
    collected = collect(tasks(), engine, rows=ROWS)
    assert [(fault.client, fault.reason) for fault in collected.faults] == [
        ("bert", "mismatch")
    ]
    assert collected.updates.keys() == {"anna", "cleo"}


def test_two_clients_cannot_share_a_node(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="two clients share a node"):
        FlowerEngine(Nodes(write(tmp_path)), {"anna": 1, "bert": 1})
