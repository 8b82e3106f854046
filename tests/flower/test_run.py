"""A job over nodes writes a model and notes; unlearning equals that of one process."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lethe_flower.answers import THREADS, answer
from lethe_flower.exchange import Kind, Reply
from lethe_flower.job import Job, Unlearning
from lethe_flower.members import meet
from lethe_flower.run import run
from tests.flower.nodes import FIRST, Nodes, write
from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS
from workers.errors import RefusedError
from workers.methods.network.base import UnlearningRequest, UnmetNeedError
from workers.methods.network.local_case import local_case
from workers.methods.network.registry import make
from workers.methods.network.validation import by_clients
from workers.training.fedavg.errors import CheckpointError, RoundFailedError
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.networks.registry import network
from workers.training.networks.weights import Weights, decode_weights, digest_of, encode_weights

TRAINING = replace(CONFIG, rounds=3)
JOB = Job(NETWORK, TRAINING, clients=3, wait=0)
LOCAL = InProcess(CLIENTS, threads=THREADS)
GONE = "bert"
LEAVING = UnlearningRequest(clients=frozenset([GONE]))
STAYS = {name: data for name, data in CLIENTS.items() if name != GONE}
BERT = FIRST + 1


def file_of(weights: Weights) -> bytes:
    return encode_weights(NETWORK.id, NETWORK.parameters, weights)


def notes_in(out: Path) -> dict[str, Any]:
    notes: dict[str, Any] = json.loads((out / "notes.json").read_bytes())
    return notes


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    out = tmp_path / "trained"
    run(JOB, Nodes(write(tmp_path)), out)
    return out


def forget(trained: Path, method: str, **settings: Any) -> Job:
    model = trained / "model.safetensors"
    return replace(JOB, unlearning=Unlearning(model, frozenset([GONE]), method, settings))


def test_a_training_leaves_the_model_of_one_process(trained: Path) -> None:
    file = (trained / "model.safetensors").read_bytes()
    assert file == file_of(train(NETWORK, ROWS, TRAINING, LOCAL).weights)
    notes = notes_in(trained)
    assert notes["sha256"] == digest_of(file)
    assert [entry["faults"] for entry in notes["rounds"]] == [{}, {}, {}]
    assert sorted(path.name for path in trained.iterdir()) == [
        "model.safetensors",
        "notes.json",
    ]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("puf-special", {"recovery": {"rounds": 1, "epochs": 1.0}}),
        ("hf-kcu", {}),
        ("retrain", {}),
    ],
)
def test_unlearning_leaves_the_model_of_one_process(
    trained: Path, method: str, settings: dict[str, Any]
) -> None:
    out = trained.parent / "unlearned"
    run(forget(trained, method, **settings), Nodes(write(trained.parent)), out)
    judge = by_clients(NETWORK, InProcess(STAYS, threads=THREADS), sizes(STAYS), CONFIG.local)
    weights = decode_weights((trained / "model.safetensors").read_bytes())[1]
    case = local_case(
        NETWORK, weights, LEAVING, TRAINING, CLIENTS, threads=THREADS, validation=judge
    )
    expected = make(method, settings).run(case)
    assert (out / "model.safetensors").read_bytes() == file_of(expected.weights)
    notes = notes_in(out)
    assert (notes["claim"], notes["method"]) == (expected.claim, method)
    assert file_of(expected.weights) != file_of(weights)


def test_no_name_is_in_the_notes(trained: Path) -> None:
    def lost(kind: Kind, _: bytes) -> Reply | None:
        return None if kind == "train" else Reply(described)

    configs = write(trained.parent)
    described = answer("query", b"", configs[BERT])
    for number, job in enumerate([JOB, forget(trained, "retrain")]):
        out = trained.parent / f"out{number}"
        run(job, Nodes(configs, {BERT: lost}), out)
        text = (out / "notes.json").read_text()
        assert not [name for name in CLIENTS if name in text]
    assert [e["faults"] for e in notes_in(trained.parent / "out0")["rounds"]] == [
        {"no-answer": 1}
    ] * 3


def test_retraining_does_not_ask_those_who_leave(trained: Path) -> None:
    nodes = Nodes(write(trained.parent))
    run(forget(trained, "retrain"), nodes, trained.parent / "unlearned")
    assert not [asked for kind, asked in nodes.asked if kind == "train" and BERT in asked]
    # Its checkpoints are pinned to the retained rows, and to no others.
    pinned = notes_in(trained.parent / "unlearned")["notes"]["retrain.data"]
    assert pinned == meet(nodes, 3, wait=0).digest(without=frozenset([GONE]))


def test_a_client_who_is_offline_is_forgotten_by_methods_that_need_nobody(
    trained: Path,
) -> None:
    configs = write(trained.parent)
    del configs[BERT]
    two = replace(forget(trained, "puf-special"), clients=2)
    with pytest.raises(UnmetNeedError, match="offline"):
        run(two, Nodes(configs), trained.parent / "puf")
    assert not (trained.parent / "puf" / "notes.json").exists()
    run(
        replace(forget(trained, "retrain"), clients=2), Nodes(configs), trained.parent / "again"
    )
    expected = train(NETWORK, sizes(STAYS), TRAINING, LOCAL).weights
    assert (trained.parent / "again" / "model.safetensors").read_bytes() == file_of(expected)


def test_an_interrupted_job_goes_on_to_the_same_bits(trained: Path) -> None:
    configs, out = write(trained.parent), trained.parent / "interrupted"
    rounds = 0

    def leaves(kind: Kind, content: bytes) -> Reply | None:
        nonlocal rounds
        rounds += kind == "train"
        if rounds > 2:
            return None
        return Reply(answer(kind, content, configs[BERT]))

    all_needed = replace(JOB, training=replace(TRAINING, min_clients=3))
    with pytest.raises(RoundFailedError):
        run(all_needed, Nodes(configs, {BERT: leaves}), out)
    assert sorted(path.name for path in out.iterdir()) == ["checkpoint"]
    with pytest.raises(CheckpointError):  # another job does not go on from it
        run(replace(JOB, training=replace(TRAINING, seed=9)), Nodes(configs), out)
    nodes = Nodes(configs)
    run(all_needed, nodes, out)
    assert [kind for kind, _ in nodes.asked] == ["query", "train"]
    assert (out / "model.safetensors").read_bytes() == (
        trained / "model.safetensors"
    ).read_bytes()


def test_a_model_of_another_network_is_refused(trained: Path, tmp_path: Path) -> None:
    other = replace(forget(trained, "retrain"), network=network("logistic", {"features": 9}))
    with pytest.raises(RefusedError, match="another network"):
        run(other, Nodes(write(tmp_path)), tmp_path / "out")
    missing = forget(tmp_path / "nowhere", "retrain")
    with pytest.raises(RefusedError, match="model: the file is missing"):
        run(missing, Nodes(write(tmp_path)), tmp_path / "out")
