"""`lethe demo --family recipe`: certificates that verify, and a model that predicts."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

from lethe.certificates.verify import verify_certificate
from tests.e2e.test_demo import keys, run_demo
from workers.training.recipes.files import decode


def test_an_estimator_forgets_three_requests_and_a_client(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run_demo(out, "--family", "recipe")
    assert done.returncode == 0, done.stdout + done.stderr
    certificates = sorted((out / "certificates").glob("*.sigstore.json"))
    assert len(certificates) == 4
    for path in certificates:
        verdict = verify_certificate(path.read_bytes(), **keys(out))
        assert verdict.result == "PASS", verdict.steps
    assert done.stdout.count("exact-retrained  7/7") == 4
    features, labels = load_breast_cancer(return_X_y=True)
    model = decode((out / "models" / "after.safetensors").read_bytes())
    assert np.mean(model.predict(features) == labels) > 0.9
