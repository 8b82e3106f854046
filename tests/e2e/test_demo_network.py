"""`lethe demo` of a deep model: what no test can show escalations, and ends as a retraining."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from lethe.certificates.verify import verify_certificate
from tests.e2e.test_demo import LETHE, keys, run_demo
from workers.demo.serving import serving_pid


def images(path: Path) -> Path:
    """Write a few images of three classes that a small network can tell apart."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=150)
    planes = rng.integers(0, 60, size=(150, 8, 8))
    for place, label in enumerate(labels):
        planes[place, :, 2 * label : 2 * label + 3] += 150
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        train_images=planes[:120].astype(np.uint8),
        train_labels=labels[:120],
        test_images=planes[120:].astype(np.uint8),
        test_labels=labels[120:],
    )
    return path


# One that escalates. `make demos-check` runs the others too: those that end otherwise are what
# tests/workers/demo prints of parts, and test_demo.py of a ridge head's demonstration.
METHODS = (
    "puf-special",
    pytest.param("puf-regular", marks=pytest.mark.slow),
    pytest.param("hf-kcu", marks=pytest.mark.slow),
    pytest.param("retrain", marks=pytest.mark.slow),
)
WAITED = re.compile(
    r"  (?:model|client, \d+ records|5 records): [a-z]+(?: \((\w+), \d+ of \d+ \w+ done\))?"
    r" after \d+\.\d s"
)


@pytest.mark.parametrize("method", METHODS)
def test_a_network_forgets_a_client_and_five_records(method: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    data = images(tmp_path / "images.npz")
    done = run_demo(out, "--method", method, "--data", str(data), "--rounds", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    certificates = sorted((out / "certificates").glob("*.sigstore.json"))
    assert len(certificates) == 2
    for path in certificates:
        check_certificate(path, out)
    check_command(certificates[0], out, method)
    check_output(done.stdout, method)
    check_progress(done.stderr)
    # A pipe is not a terminal: nothing is rewritten.
    assert "\r" not in done.stdout + done.stderr
    assert serving_pid(out / "data") is None


def test_a_head_on_given_features_forgets_with_noise(tmp_path: Path) -> None:
    rng, out, data = np.random.default_rng(0), tmp_path / "out", tmp_path / "features.npz"
    labels = rng.integers(3, size=120)
    features = rng.normal(size=(120, 6)) + 2 * np.eye(3, 6)[labels]
    np.savez(data, features=features, labels=labels, clients=np.arange(120) % 4)
    done = run_demo(out, "--method", "noisy-finetuning", "--data", str(data), "--rounds", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    certificates = sorted((out / "certificates").glob("*.sigstore.json"))
    assert len(certificates) == 2
    for path in certificates:
        check_certificate(path, out, "certified-approximate")
        evidence = out / "evidence" / f"{path.name.split('.')[0]}.json"
        check_verified(path, out)
        command = [*LETHE, "certificate", "recheck", str(path), "--evidence", str(evidence)]
        again = subprocess.run(command, capture_output=True, text=True, check=False)
        assert again.returncode == 0, again.stdout + again.stderr
        assert "DIFFERS" not in again.stdout
    assert done.stdout.count("noisy-finetuning  certified-approximate  10/10 ") == 2


def check_certificate(path: Path, out: Path, guarantee: str = "exact-retrained") -> None:
    """Check that a certificate is of this class and that the verifier passed it."""
    evidence = (out / "evidence" / f"{path.name.split('.')[0]}.json").read_bytes()
    verdict = verify_certificate(path.read_bytes(), evidence=evidence, **keys(out))
    assert verdict.result == "PASS", verdict.steps
    assert verdict.statement is not None
    assert verdict.statement.predicate.guarantee.class_ == guarantee
    report = json.loads(evidence)["report"]
    assert report["result"] == "PASS"


def check_verified(path: Path, out: Path) -> None:
    """Check a certificate offline as a stranger would."""
    evidence = out / "evidence" / f"{path.name.split('.')[0]}.json"
    arguments = ["--keys", str(out / "keys"), "--evidence", str(evidence)]
    command = [*LETHE, "certificate", "verify", str(path), *arguments]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "PASS" in verified.stdout


def check_command(path: Path, out: Path, method: str) -> None:
    """Check a certificate as a stranger would, and what it says of the escalation."""
    check_verified(path, out)
    command = [*LETHE, "certificate", "show", str(path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    asked, attempt = (
        f"asked       {method}",
        f"attempt 1   {method}: INCONCLUSIVE, so it was not cert",
    )
    assert (asked in shown) == (attempt in shown) == (method != "retrain")
    last = "attempt 2   retrain: PASS, the certified one (7 checks)"
    assert (last in shown) == ("not shown  samples" in shown) == (method != "retrain")


def check_output(stdout: str, method: str) -> None:
    """Check that the whole way is told, and that the model is what retraining gives."""
    lines = stdout.splitlines()
    assert "simple-cnn, FedAvg, 2 rounds of 5 epochs" in lines[0]
    digests = [
        line.split()[-1]
        for line in lines
        if line.startswith(("Published model:", "Retrained without them:"))
    ]
    assert len(digests) == 2
    assert len(set(digests)) == 1
    assert stdout.count("  retrain  exact-retrained  7/7 ") == 2
    escalations = method != "retrain"
    assert stdout.count("events of the log: received → ") == 2
    assert stdout.count("verified → escalated → executed") == 2 * escalations
    assert (
        stdout.count("escalated: the verifier could not confirm the result") == 2 * escalations
    )


def check_progress(stderr: str) -> None:
    """Check that who waits in a pipe is told states and rounds, a line each."""
    found = [WAITED.fullmatch(line) for line in stderr.splitlines()]
    assert all(found), stderr
    phases = {line[1] for line in found if line is not None and line[1] is not None}
    assert phases <= {"training", "step", "recovery", "retraining", "repetition"}
