"""Equal bits in another process, switches put back, a digest of the rows."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.workers.training.fedavg.small import CLIENTS, CONFIG, NETWORK, ROWS
from workers.training.fedavg.base import ClientData
from workers.training.fedavg.client.data import data_digest
from workers.training.fedavg.determinism import deterministic, environment
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import train
from workers.training.networks.weights import encode_weights

ROOT = Path(__file__).resolve().parents[4]

PROGRAM = """
import torch
torch.manual_seed(99)
torch.rand(7)
from tests.workers.training.fedavg.test_determinism import trained
print(trained())
"""


def trained() -> str:
    weights = train(NETWORK, ROWS, CONFIG, InProcess(CLIENTS, threads=1)).weights
    return hashlib.sha256(encode_weights(NETWORK.id, NETWORK.parameters, weights)).hexdigest()


def test_another_process_trains_the_same_model() -> None:
    """With another hash seed, so that no order of a set or of arrival can hide."""
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == trained()


@pytest.mark.parametrize("fails", [False, True])
def test_the_switches_are_put_back(fails: bool) -> None:
    def switches() -> tuple[object, ...]:
        return (
            torch.are_deterministic_algorithms_enabled(),
            torch.get_num_threads(),
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.allow_tf32,
        )

    before = switches()
    try:
        with deterministic(threads=2):
            assert torch.are_deterministic_algorithms_enabled()
            assert torch.get_num_threads() == 2
            assert not torch.backends.cudnn.allow_tf32
            if fails:
                raise KeyError
    except KeyError:
        assert fails
    assert switches() == before


def test_the_environment_is_named() -> None:
    found = environment()
    assert found["device"] == "cpu"
    assert found["torch"] == str(torch.__version__)
    assert {"threads", "instructions"} <= found.keys()


def test_the_digest_of_the_rows_sees_every_change() -> None:
    one = {"a": ClientData(torch.zeros(2, 4), torch.tensor([0, 1]))}
    changes = [
        one,
        {"b": one["a"]},
        {"a": ClientData(torch.zeros(2, 4), torch.tensor([1, 0]))},
        {"a": ClientData(torch.zeros(2, 2, 2), torch.tensor([0, 1]))},
        {"a": ClientData(torch.full((2, 4), -0.0), torch.tensor([0, 1]))},
        {"a": one["a"].only(torch.tensor([0]))},
        {**one, "b": one["a"]},
        {},
    ]
    assert len({data_digest(clients) for clients in changes}) == len(changes)
    again = {
        "a": ClientData(torch.from_numpy(np.zeros((4, 2), np.float32)).t(), one["a"].targets)
    }
    assert data_digest(again) == data_digest(one)
