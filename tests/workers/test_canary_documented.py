"""The canary of docs/register-networks.md: its registration is accepted, its rows count as planted."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from app.schemas.families.networks import NewNetwork
from tests.docs.markdown import read
from workers.judge.policy.policy import Policy
from workers.registration.network import NetworkOptions
from workers.registration.network_source import Source, prepare
from workers.training.fedavg.base import ClientData
from workers.training.replay.canary import read_canary

CLASSES = ["clear", "shadow"]


def documented(language: str) -> str:
    """Return the code block of the section in a language."""
    section = re.search(
        r"(?ms)^## Registering a canary$(.*?)^## Contributions",
        read("docs/register-networks.md"),
    )
    assert section is not None
    block = re.search(rf"(?s)```{language}\n(.*?)```", section[1])
    assert block is not None
    return block[1]


def test_the_manifest_of_the_command_is_a_registration(tmp_path: Path) -> None:
    said = json.loads(documented("json"))
    np.savez(
        tmp_path / "rows.npz",
        inputs=np.zeros((4, 1, 28, 28), np.uint8),
        labels=np.array([0, 1, 0, 1]),
        clients=np.array(["a", "a", "b", "b"]),
        label_names=np.array(CLASSES),
    )
    policy = Policy(("shokri", "yeom"), 0.1, 310, canary_limit=0.3)
    assert said["policy"]["canary_limit"] == "0.3"
    options = NetworkOptions(policy=policy, canary=said["canary"])
    prepared = prepare(Source(tmp_path / "rows.npz"), ref="x-rays", options=options)
    wanted = NewNetwork.model_validate(prepared.manifest)
    assert wanted.canary is not None
    assert wanted.canary.model_dump(mode="json") == said["canary"]
    bare = prepare(Source(tmp_path / "rows.npz"), ref="x", options=NetworkOptions(canary={}))
    assert "canary" not in bare.manifest


def test_rows_that_are_planted_as_documented_are_counted() -> None:
    rng = np.random.default_rng(0)
    said = json.loads(documented("json"))
    names: dict[str, Any] = {
        "np": np,
        "canary": {**said["canary"], "units": "numbers"},
        "classes": CLASSES,
        "inputs": rng.integers(200, size=(50, 1, 28, 28)).astype(np.float32),
        "labels": np.zeros(50, dtype=np.int64),
    }
    exec(documented("python"), names)
    canary = read_canary(names["canary"], (1, 28, 28), CLASSES)
    assert canary is not None
    data = ClientData(torch.from_numpy(names["inputs"]), torch.from_numpy(names["labels"]))
    assert canary.planted(data) == int(names["labels"].sum()) == 5
