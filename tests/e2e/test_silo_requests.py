"""Signed requests, one by each method, whose rounds go to silos: all processes are real."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lethe.certificates.verify import verify_certificate
from lethe.client import Client
from tests import small_network
from tests.e2e.harness import Processes, until
from tests.e2e.test_demo import keys
from tests.small import pack

GONE = "c1"
# Ten records, of which a quarter is held out: some were trained on. All policies ask for more
# rows than that, so an approximate method escalates to the retraining.
SCOPES: dict[str, dict[str, Any]] = {
    "puf-special": {"client": GONE},
    "puf-regular": {"records": [f"r{row}" for row in range(0, 40, 4)]},
    "hf-kcu": {"records": [f"r{row}" for row in range(2, 40, 4)]},
    "retrain": {"records": [f"r{row}" for row in range(3, 40, 4)]},
}


@contextmanager
def silos(processes: Processes) -> Iterator[None]:
    """Start a worker for each of two silos, and kill them in the end."""
    started = []
    try:
        for silo in ("0", "1"):
            with (processes.directory / f"silo-{silo}.log").open("ab") as output:
                started.append(processes.start(["worker", "--silo", silo], output, output))
        yield
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def erased(requester: Client, method: str) -> tuple[bytes, bytes]:
    """Have a method erase its scope; return the certificate and its evidence."""
    receipt = requester.submit_erasure(small_network.MODEL, method=method, **SCOPES[method])
    status = requester.wait(receipt.id, timeout=120)
    assert status.state == "certified", (method, status)
    return requester.certificate(receipt.id), requester.evidence(receipt.id)


def test_signed_requests_are_carried_out_by_silos(on_files: Processes) -> None:
    # Not the harness's short lease: a job here spans rounds of other processes.
    on_files.more = {"LETHE_SILOS": "2", "LETHE_LEASE_SECONDS": "30"}
    on_files.start_api()
    on_files.start_worker()
    with silos(on_files):
        with on_files.operator() as operator:
            operator.register_key(on_files.key, keyid="alice")
            operator.register_model(small_network.manifest(), pack(small_network.rows()))
            until(
                lambda: operator.model(small_network.MODEL)["state"] == "ready",
                "the training over silos",
                on_files.worker,
            )
        with on_files.requester() as requester:
            found = {method: erased(requester, method) for method in SCOPES}
    for method, (bundle, evidence) in found.items():
        verifiers = keys(on_files.directory / "data")
        verdict = verify_certificate(bundle, evidence=evidence, **verifiers)
        assert verdict.result == "PASS", (method, verdict.steps)
        assert verdict.statement is not None
        parameters = verdict.statement.predicate.method.parameters
        assert parameters["engine"] == "silos:2"
        assert parameters.get("asked", "retrain") == method
        assert parameters["retrain.missing"] == "0", "each silo answered for its clients"
    for log in on_files.directory.glob("*.log"):
        # As a word: an address in memory may hold the same digits.
        assert re.search(rf"\b{GONE}\b", log.read_text()) is None, "no log names a client"
