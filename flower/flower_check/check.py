"""Train, unlearn and lose a node over a real SuperLink; the same bits as in one process."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flower_check.deployment import START, CheckError, Deployment, until
from lethe_flower.answers import THREADS, load_rows
from lethe_flower.job import read_job
from workers.methods.network.base import UnlearningRequest
from workers.methods.network.local_case import local_case
from workers.methods.network.registry import make
from workers.training.fedavg.base import Answers, Clients, RoundTask
from workers.training.fedavg.in_process import InProcess
from workers.training.fedavg.rounds import sizes, train
from workers.training.networks.weights import Weights, decode_weights, encode_weights

NAMES = ("north", "east", "south")
GONE = "south"
STRANGER = "stranger"
JOB: dict[str, Any] = {
    "network": {"id": "simple-cnn", "shape": {"height": 12, "width": 12, "classes": 4}},
    "training": {
        "rounds": 2,
        "seed": 5,
        "timeout": 300,  # far longer than a round: the SuperLink must notice a dead node
        "min_clients": 2,
        "local": {"epochs": 1, "batch_size": 16, "learning_rate": 0.05, "momentum": 0.9},
    },
    "clients": 3,
    "wait": START,
}
LOSSY = {**JOB["training"], "rounds": 3}
JOB_TIME = 1200.0  # seconds; each answer is a process that imports torch
# PUF's guard asks for many losses: the fixed step shows as much in two rounds.
SETTINGS = {"guard": None, "recovery": {"rounds": 1, "epochs": 1.0}}


def main() -> None:
    """Run all steps. Raises CheckError naming the broken promise."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        clients = _write_rows(root)
        with Deployment(root, [*NAMES, STRANGER]) as deployment:
            nodes = {name: deployment.register(name) for name in NAMES}
            for name in NAMES:
                deployment.start_node(name, root / f"{name}.npz")
            job = {**JOB, "nodes": nodes}
            with _Step("a node whose key is not registered is refused"):
                _stranger(deployment, root)
            with _Step("two rounds, the bits of InProcess"):
                _trains(deployment, root, clients, job)
            with _Step("puf-special, the bits of InProcess"):
                _unlearns(deployment, root, clients, job)
            with _Step("a killed SuperNode is a fault, the rounds go on"):
                _survives(deployment, root, clients, job)
    print("passed")


def _stranger(deployment: Deployment, root: Path) -> None:
    process = deployment.start_node(STRANGER, root / f"{NAMES[0]}.npz")
    until(lambda: process.poll() is not None, START, "the stranger is not turned away")
    if process.returncode == 0:
        raise CheckError("the stranger ended without an error")


def _trains(deployment: Deployment, root: Path, clients: Clients, job: dict[str, Any]) -> None:
    out = root / "trained"
    notes = deployment.finish(deployment.run(job, out), out, JOB_TIME)
    expected = _locally(root, job, InProcess(clients, threads=THREADS), clients)
    _same(out, root, expected)
    _equal([entry["faults"] for entry in notes["rounds"]], [{}, {}], "faults")


def _unlearns(
    deployment: Deployment, root: Path, clients: Clients, job: dict[str, Any]
) -> None:
    asked = {"model": "trained/model.safetensors", "forget": [GONE], "method": "puf-special"}
    job = {**job, "unlearning": {**asked, "settings": SETTINGS}}
    out = root / "unlearned"
    notes = deployment.finish(deployment.run(job, out), out, JOB_TIME)
    _equal(notes["claim"], "empirical-approximate", "the claim")
    parsed = read_job(root / "unlearned.json")
    case = local_case(
        parsed.network,
        decode_weights((root / "trained" / "model.safetensors").read_bytes())[1],
        UnlearningRequest(clients=frozenset([GONE])),
        parsed.training,
        clients,
        threads=THREADS,
    )
    _same(out, root, make("puf-special", SETTINGS).run(case).weights)


def _survives(
    deployment: Deployment, root: Path, clients: Clients, job: dict[str, Any]
) -> None:
    job = {**job, "training": LOSSY}
    out = root / "lossy"
    run = deployment.run(job, out)
    until((out / "checkpoint").exists, JOB_TIME, "the first round does not end")
    deployment.kill_node(GONE)
    notes = deployment.finish(run, out, JOB_TIME)
    lost: dict[str, int] = {"no-answer": 1}
    _equal([entry["faults"] for entry in notes["rounds"]], [{}, lost, lost], "faults")
    engine = _Losing(InProcess(clients, threads=THREADS), GONE, after=1)
    _same(out, root, _locally(root, job, engine, clients))


class _Losing:
    """An engine that no longer reaches one client after some round."""

    def __init__(self, engine: InProcess, client: str, after: int) -> None:
        self._engine, self._client, self._after = engine, client, after

    def run(self, tasks: Sequence[RoundTask], *, timeout: float) -> Answers:
        there = [t for t in tasks if t.round <= self._after or t.client != self._client]
        return self._engine.run(there, timeout=timeout)


def _locally(
    root: Path, job: dict[str, Any], engine: InProcess | _Losing, clients: Clients
) -> Weights:
    parsed = read_job(root / ("lossy.json" if job["training"] is LOSSY else "trained.json"))
    return train(parsed.network, sizes(clients), parsed.training, engine).weights


def _same(out: Path, root: Path, expected: Weights) -> None:
    network = read_job(root / f"{out.name}.json").network
    file = encode_weights(network.id, network.parameters, expected)
    if (out / "model.safetensors").read_bytes() != file:
        raise CheckError("the weights differ from those of one process")


def _equal(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise CheckError(f"{what}: {found} and not {expected}")


def _write_rows(root: Path) -> Clients:
    rng = np.random.default_rng(0)
    for position, name in enumerate(NAMES):
        n = 40 + 10 * position
        np.savez(
            root / f"{name}.npz",
            inputs=rng.normal(size=(n, 1, 12, 12)).astype(np.float32),
            targets=rng.integers(4, size=n),
        )
    return {name: load_rows(root / f"{name}.npz") for name in NAMES}


class _Step:
    """Prints a step and its duration."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, kind: object, *_: object) -> None:
        seconds = time.monotonic() - self._started
        print(
            f"{'ok' if kind is None else 'FAILED'}: {self._what} ({seconds:.0f} s)", flush=True
        )


if __name__ == "__main__":
    main()
