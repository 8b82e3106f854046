"""The main job through real processes: API, worker, database, broker, command line."""

import base64
import json
from pathlib import Path

from lethe.certificates.evidence import record_commitment
from lethe.signing.keys import private_pem
from tests.e2e.harness import Processes
from tests.interop.sigstore_js import verify as verify_with_npm
from tests.small import MODEL


def test_signed_request_to_verified_certificate(processes: Processes, tmp_path: Path) -> None:
    processes.forks = None  # as an operator starts them
    processes.start_api()
    processes.start_worker()
    processes.register()
    with processes.requester() as requester:
        receipt = requester.submit_erasure(MODEL, records=["r1", "r2"])
        status = requester.wait(receipt.id, timeout=60)
        assert status.state == "certified"
        bundle, evidence = tmp_path / "a.sigstore.json", tmp_path / "a.json"
        bundle.write_bytes(requester.certificate(receipt.id))
        evidence.write_bytes(requester.evidence(receipt.id))
    with processes.operator() as operator:
        head = tmp_path / "after.safetensors"
        head.write_bytes(operator.artifact(MODEL, 2))
    keys = processes.directory / "data" / "keys"
    verified = processes.cli(
        *("certificate", "verify", str(bundle), "--keys", str(keys), "--json"),
        *("--evidence", str(evidence), "--model", str(head)),
    )
    verdict = json.loads(verified.stdout)
    assert verdict["result"] == "PASS", verdict
    assert [step["number"] for step in verdict["steps"]] == list(range(1, 10))
    removal = json.loads(evidence.read_bytes())["removal"]
    assert {record["record"] for record in removal["records"]} == {"r1", "r2"}
    assert processes.cli("log", "fsck").returncode == 0
    followed = processes.cli(
        "log", "verify", f"{processes.base_url}/v1/log", "--vkey", str(keys / "log.vkey")
    )
    assert followed.returncode == 0
    accepted, said = verify_with_npm(bundle, keys / "log.vkey", keys / "issuer.pem")
    assert accepted, said


def test_the_command_line_submits_and_watches(registered: Processes, tmp_path: Path) -> None:
    registered.start_api()
    registered.start_worker()
    key = tmp_path / "alice.pem"
    key.write_text(private_pem(registered.key))
    vkey = registered.directory / "data" / "keys" / "log.vkey"
    done = registered.cli(
        *("request", "submit", "--url", registered.base_url, "--key", str(key)),
        *("--keyid", "alice", "--model", MODEL, "--record", "r7", "--log-key", str(vkey)),
        "--watch",
    )
    assert "certified" in done.stdout


def test_commitments_of_the_evidence_open(registered: Processes) -> None:
    registered.start_api()
    registered.start_worker()
    with registered.requester() as requester:
        receipt = requester.submit_erasure(MODEL, client="c3")
        assert requester.wait(receipt.id, timeout=60).state == "certified"
        removal = json.loads(requester.evidence(receipt.id))["removal"]
    for record in removal["records"]:
        salt, commitment = (base64.b64decode(record[name]) for name in ("salt", "commitment"))
        assert record_commitment(salt, record["record"]) == commitment
