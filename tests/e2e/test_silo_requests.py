"""A signed request whose rounds go to silos: every process and every queue is a real one."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from app.certificates.verify import verify_certificate
from tests import small_network
from tests.e2e.harness import Processes, until
from tests.e2e.test_demo import keys
from tests.small import pack

GONE = "c1"


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


def test_a_signed_request_is_carried_out_by_silos(on_files: Processes) -> None:
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
            receipt = requester.submit_erasure(
                small_network.MODEL, client=GONE, method="puf-special"
            )
            status = requester.wait(receipt.id, timeout=120)
            assert status.state == "certified", status
            bundle = requester.certificate(receipt.id)
            evidence = requester.evidence(receipt.id)
    verdict = verify_certificate(bundle, evidence=evidence, **keys(on_files.directory / "data"))
    assert verdict.result == "PASS", verdict.steps
    assert verdict.statement is not None
    parameters = verdict.statement.predicate.method.parameters
    assert parameters["engine"] == "silos:2"
    assert parameters["asked"] == "puf-special"
    assert parameters["retrain.missing"] == "0", "each silo answered for its clients"
    for log in on_files.directory.glob("*.log"):
        assert GONE not in log.read_text(), "no log names a client"
