"""A job is read whole or refused by the name of the field, which is not repeated."""

import json
from pathlib import Path
from typing import Any

import pytest

from lethe_flower.job import read_job
from tests.workers.training.fedavg.small import NETWORK
from workers.errors import RefusedError
from workers.training.fedavg.config import LocalConfig, TrainingConfig

SECRET = "anna-4711"
JOB: dict[str, Any] = {
    "network": {"id": "logistic", "shape": {"features": 4, "classes": 3}},
    "training": {"rounds": 2, "seed": 3, "local": {"epochs": 2}},
    "clients": 3,
}
FORGET = {"model": "model.safetensors", "forget": ["anna"], "method": "retrain"}


def _write(directory: Path, document: Any) -> Path:
    path = directory / "job.json"
    path.write_text(json.dumps(document))
    return path


def test_a_training_is_read(tmp_path: Path) -> None:
    job = read_job(_write(tmp_path, JOB))
    assert job.network == NETWORK
    assert job.training == TrainingConfig(rounds=2, seed=3, local=LocalConfig(epochs=2.0))
    assert (job.clients, job.nodes, job.unlearning) == (3, None, None)


def test_paths_are_relative_to_the_job(tmp_path: Path) -> None:
    start = {"start": "/srv/start.safetensors"}
    job = read_job(_write(tmp_path, {**JOB, "unlearning": {**FORGET, **start}}))
    assert job.unlearning is not None
    assert job.unlearning.model == tmp_path / "model.safetensors"
    assert job.unlearning.start == Path("/srv/start.safetensors")
    assert job.unlearning.forget == {"anna"}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"clients": 0}, "clients"),
    ({"clients": 2.5}, "clients"),
    ({"clients": True}, "clients"),
    ({"wait": -1}, "wait"),
    ({"wait": float("nan")}, "wait"),
    ({"network": {"id": SECRET}}, "unknown network"),
    ({"network": [SECRET]}, "network"),
    ({"training": {"rounds": 2}}, "training"),
    ({"training": {"rounds": 2, "seed": 3, SECRET: 1}}, "training"),
    ({"training": SECRET}, "training"),
    ({"nodes": {SECRET: "1"}}, "nodes: must be"),
    ({"nodes": {SECRET: 1, "b": 1}}, "two clients have the same node"),
    ({SECRET: 1}, "job"),
    ({"unlearning": {**FORGET, "forget": SECRET}}, "forget"),
    ({"unlearning": {**FORGET, "settings": [SECRET]}}, "settings"),
    ({"unlearning": {**FORGET, "model": 3}}, "model"),
    ({"unlearning": {**FORGET, "start": 3}}, "start"),
    (
        {"nodes": {"bert": 1}, "unlearning": {**FORGET, "forget": [SECRET]}},
        "not in nodes",
    ),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_a_wrong_field_is_named_and_not_repeated(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(RefusedError, match=message) as caught:
        read_job(_write(tmp_path, {**JOB, **changes}))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[", "[]", "3"])
def test_a_file_that_is_no_job_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.json"
    path.write_text(text)
    with pytest.raises(RefusedError, match="job"):
        read_job(path)
