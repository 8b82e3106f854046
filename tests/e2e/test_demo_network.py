"""`lethe demo` of a deep model: what no test can show climbs, and ends as a retraining."""

import json
import subprocess
from pathlib import Path

import numpy as np

from app.certificates.verify import verify_certificate
from tests.e2e.test_demo import LETHE, keys, run_demo


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


def test_a_network_forgets_a_client_and_five_records(tmp_path: Path) -> None:
    out = tmp_path / "out"
    data = images(tmp_path / "images.npz")
    done: subprocess.CompletedProcess[str] = run_demo(
        out, "--method", "puf-special", "--data", str(data)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    certificates = sorted((out / "certificates").glob("*.sigstore.json"))
    assert len(certificates) == 2
    for path in certificates:
        evidence = (out / "evidence" / f"{path.name.split('.')[0]}.json").read_bytes()
        verdict = verify_certificate(path.read_bytes(), evidence=evidence, **keys(out))
        assert verdict.result == "PASS", verdict.steps
        assert verdict.statement is not None
        assert verdict.statement.predicate.guarantee.class_ == "exact-retrained"
        report = json.loads(evidence)["report"]
        assert report["result"] == "PASS"
    shown = subprocess.run(
        [*LETHE, "certificate", "show", str(certificates[0])],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "asked       puf-special" in shown
    assert "rung 1      puf-special: INCONCLUSIVE, so it was not certified: there were" in shown
    assert "not shown  samples" in shown
    assert "rung 2      retrain: PASS, the certified one (7 checks)" in shown
    published, again = (
        line.split()[-1]
        for line in done.stdout.splitlines()
        if line.startswith(("Published model:", "Retrained without them:"))
    )
    assert published == again
    assert "events of the log: received → " in done.stdout
    assert "verified → escalated → executed" in done.stdout
    assert "escalated: a method's result could not be shown" in done.stdout
