"""Each method of the ridge family, and statistics in place of rows, through real processes."""

import json
from pathlib import Path

import numpy as np
import pytest

from lethe.client import Client
from lethe.signing.keys import generate_key, private_pem
from tests.e2e.harness import Processes, until
from tests.small import CLIENTS, MODEL, manifest, rows

METHODS = {
    "ridge-woodbury": "numerically-exact",
    "acu": "numerically-exact",
    "ridge-sketched": "certified-approximate",
}


def verify(processes: Processes, requester: Client, request_id: str, folder: Path) -> str:
    """Verify a certificate by the command line; return its statement as shown."""
    bundle, evidence = folder / "a.sigstore.json", folder / "a.json"
    bundle.write_bytes(requester.certificate(request_id))
    evidence.write_bytes(requester.evidence(request_id))
    keys = processes.directory / "data" / "keys"
    done = processes.cli(
        *("certificate", "verify", str(bundle), "--keys", str(keys), "--json"),
        *("--evidence", str(evidence)),
    )
    assert json.loads(done.stdout)["result"] == "PASS", done.stdout
    return processes.cli("certificate", "show", str(bundle)).stdout


def test_each_method_on_one_model(processes: Processes, tmp_path: Path) -> None:
    """Variant A is the main job's; here B, ACU and sketches follow each other."""
    processes.start_api()
    processes.start_worker()
    processes.register()
    with processes.requester() as requester:
        for number, (method, guarantee) in enumerate(METHODS.items()):
            receipt = requester.submit_erasure(MODEL, records=[f"r{number}"], method=method)
            assert requester.wait(receipt.id, timeout=60).state == "certified"
            shown = verify(processes, requester, receipt.id, tmp_path)
            assert method in shown
            assert guarantee in shown


@pytest.mark.parametrize(
    ("method", "form"), [("ridge-exact", "factor"), ("ridge-sketched", "sketch")]
)
def test_clients_that_keep_their_rows(
    processes: Processes, tmp_path: Path, method: str, form: str
) -> None:
    """From `lethe client contribute` to a verified certificate; no row is ever sent."""
    processes.start_api()
    processes.start_worker()
    arrays = rows()
    with processes.operator() as operator:
        operator.register_key(processes.key, keyid="alice")
        operator.register_model(manifest(data="statistics", method=method, penalty=1000.0))
        keys = []
        for number in range(CLIENTS):
            key, name = generate_key("ed25519"), f"c{number}"
            operator.register_key(key, "client", client=name)
            mine = arrays["clients"] == name
            np.savez(tmp_path / f"{name}.npz", **{k: v[mine] for k, v in arrays.items()})
            (tmp_path / f"{name}.pem").write_text(private_pem(key))
            keys.append(name)
        sketch = ("--rank", "6") if form == "sketch" else ()
        for name in keys:
            processes.cli(
                *("client", "contribute", "--url", processes.base_url, "--model", MODEL),
                *("--key", str(tmp_path / f"{name}.pem"), "--form", form, *sketch),
                *("--data", str(tmp_path / f"{name}.npz")),
            )
        until(
            lambda: operator.model(MODEL)["current_version"] == CLIENTS,
            "five contributions to be learned",
            processes.worker,
        )
    with processes.requester() as requester:
        receipt = requester.submit_erasure(MODEL, records=["r0", "r5"])  # both of c0
        until(
            lambda: requester.status(receipt.id).state == "awaiting-client",
            "the request to wait for its client",
            processes.worker,
        )
        credentials = ("--url", processes.base_url, "--key", str(tmp_path / "c0.pem"))
        assert "2 records" in processes.cli("client", "asked", *credentials).stdout
        released = processes.cli(
            *("client", "release", *credentials, "--data", str(tmp_path / "c0.npz"))
        )
        assert "released 2 records" in released.stdout
        assert requester.wait(receipt.id, timeout=60).state == "certified"
        shown = verify(processes, requester, receipt.id, tmp_path)
        assert "The rows were not seen" in shown
        whole = requester.submit_erasure(MODEL, client="c1")
        assert requester.wait(whole.id, timeout=60).state == "certified"
        verify(processes, requester, whole.id, tmp_path)
    assert processes.cli("log", "fsck").returncode == 0
