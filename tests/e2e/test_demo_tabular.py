"""`lethe demo --family`: certificates that verify, and models that predict."""

import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from lethe.certificates.case_summary import check_summary
from lethe.certificates.keys import read_issuer
from lethe.certificates.verify import verify_certificate
from lethe.estimators.forest.published import PublishedForest
from tests.e2e.test_demo import keys, run_demo
from workers.demo import program
from workers.training.recipes.files import decode
from workers.training.shards.predict import ShardedModel
from workers.training.vectors import files
from workers.training.vectors.faiss_file import search

Numbers = NDArray[Any]
PREDICT: dict[str, Callable[[bytes, Numbers], Numbers]] = {
    "recipe": lambda file, rows: decode(file).predict(rows),
    "forest": lambda file, rows: PublishedForest.from_bytes(file).probabilities(rows).argmax(1),
    "shards": lambda file, rows: ShardedModel.from_bytes(file).predict(rows),
    "script": program.predict,
    "vectors": lambda file, rows: labels_of_the_nearest(file, rows),
}
EXACT = ("forest", "vectors")
GUARANTEE = {name: "exact" if name in EXACT else "exact-retrained" for name in PREDICT}
CHECKS = {"vectors": 8, "shards": 8}  # of the others 7


def labels_of_the_nearest(file: bytes, rows: Numbers) -> Numbers:
    """Return the label of the record that is nearest to each row (n, columns)."""
    labels = load_breast_cancer(return_X_y=True)[1]
    _, names = search(files.decode(file), rows.astype(np.float32), 1)
    return np.array([labels[int(name.rpartition("-")[2])] for (name,) in names])


# One program demonstrates all of them, and each family's own tests erase and verify: one here,
# `make demos-check` runs the others too.
@pytest.mark.parametrize(
    "family",
    [
        name if name == "recipe" else pytest.param(name, marks=pytest.mark.slow)
        for name in PREDICT
    ],
)
def test_a_model_forgets_records_a_subject_a_client_and_a_person(
    tmp_path: Path, family: str
) -> None:
    out = tmp_path / "out"
    done = run_demo(out, "--family", family)
    assert done.returncode == 0, done.stdout + done.stderr
    certificates = sorted((out / "certificates").glob("*.sigstore.json"))
    assert len(certificates) == 5
    for path in certificates:
        verdict = verify_certificate(path.read_bytes(), **keys(out))
        assert verdict.result == "PASS", verdict.steps
    assert (
        len(
            re.findall(
                rf"  {GUARANTEE[family]} +{CHECKS.get(family, 7)}/{CHECKS.get(family, 7)}",
                done.stdout,
            )
        )
        == 5
    ), done.stdout
    answer = check_summary(
        (out / "evidence" / "answer.json").read_bytes(),
        read_issuer(out / "keys" / "issuer.pem"),
    )
    (part,) = answer.predicate.parts
    digests = {sha256(path.read_bytes()).hexdigest() for path in certificates}
    assert part.outcome == "certified"
    assert part.certificate in digests
    features, labels = load_breast_cancer(return_X_y=True)
    file = (out / "models" / "after.safetensors").read_bytes()
    assert np.mean(PREDICT[family](file, features) == labels) > 0.9
    if family == "vectors":
        check_neighbours(out, features)


def check_neighbours(out: Path, features: Numbers) -> None:
    """Check that a search finds each record before, and after none that was erased."""
    before, after = (
        files.decode((out / "models" / f"{name}.safetensors").read_bytes())
        for name in ("before", "after")
    )
    erased = sorted(set(before.records) - set(after.records))
    assert len(erased) > 25
    rows = features[[int(name.rpartition("-")[2]) for name in erased]].astype(np.float32)
    assert [names[0] for names in search(before, rows, 1)[1]] == erased
    found = {name for names in search(after, rows, 10)[1] for name in names}
    assert found.isdisjoint(erased)
