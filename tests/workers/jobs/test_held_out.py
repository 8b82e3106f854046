"""Held-out rows that are stored: measured at every version, erased, and out of others' reach.

The oracle computes the figures with scikit-learn from the rows of the test and the file that
the service publishes.
"""

import json
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score
from sqlmodel import Session, select

from app.reconcile.fsck import fsck
from app.reconcile.held_out import KIND
from models import Artifact
from tests.installation import Installation
from tests.workers.jobs.test_people import EVE, named, packed
from workers.artifacts import decode_head

HELD = 24


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: held-out rows go through the same calls as all artifacts."""
    return sqlite_url


def evaluated(
    arrays: dict[str, Any], count: int = HELD, numbers: bool = False
) -> dict[str, Any]:
    """Return a registration's arrays with held-out rows: held0 is Eve's, of client c0."""
    rng = np.random.default_rng(7)
    width = arrays["features"].shape[1]
    features = rng.normal(size=(count, width))
    labels: Any = features[:, 0] * 2 if numbers else rng.integers(3, size=count)
    emails = [EVE] + [""] * (count - 1)
    return {
        **arrays,
        "held_out_features": features,
        "held_out_labels": labels,
        "held_out_records": np.array([f"held{i}" for i in range(count)]),
        "held_out_clients": np.array([f"c{i % 5}" for i in range(count)]),
        "held_out_subjects": np.array([f"person{i}" for i in range(count)]),
        "held_out_identity_email": packed(*emails),
    }


def ready(installation: Installation, count: int = HELD) -> dict[str, Any]:
    """Fit the small model with held-out rows, and return what was sent."""
    arrays = evaluated(named(), count)
    installation.ready(arrays=arrays)
    return arrays


def versions(installation: Installation, ref: str = "small") -> list[dict[str, Any]]:
    """Return a model's versions as an operator sees them."""
    answer = installation.caller.operator("GET", f"/v1/models/{ref}/versions")
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


def artifact(installation: Installation, number: Any = "current", ref: str = "small") -> bytes:
    """Return the file of a version."""
    path = f"/v1/models/{ref}/versions/{number}/artifact"
    return bytes(installation.caller.operator("GET", path).content)


def oracle(installation: Installation, arrays: dict[str, Any], without: int = 0) -> str:
    """Return scikit-learn's accuracy of the current head on held-out rows from one on."""
    head, _ = decode_head(artifact(installation))
    features, labels = arrays["held_out_features"], arrays["held_out_labels"]
    found = (features[without:] @ head).argmax(axis=1)
    return f"{accuracy_score(labels[without:], found):.4f}"


def stored(installation: Installation) -> list[Artifact]:
    """Return the artifacts of held-out rows whose keys are there."""
    with Session(installation.services.engine) as session:
        query = select(Artifact).where(Artifact.kind == KIND)
        return [one for one in session.exec(query) if one.wrapped_key is not None]


def problems(installation: Installation) -> set[str]:
    """Return the checks that fsck finds fault with."""
    return {one.check for one in fsck(installation.services.ledger).findings}


def test_each_version_is_measured_and_the_certificate_reports_it(
    installation: Installation,
) -> None:
    arrays = ready(installation)
    (first,) = versions(installation)
    assert first["held_out"]["metric"] == "accuracy"
    assert first["held_out"]["rows"] == HELD
    assert first["held_out"]["value"] == oracle(installation, arrays)
    request = installation.caller.erase_records("r1", "r2", "r3").json()["id"]
    installation.drain()
    second = versions(installation)[1]["held_out"]
    assert second["value"] == oracle(installation, arrays)
    assert second["set"] == first["held_out"]["set"]
    shown_model = installation.caller.operator("GET", "/v1/models/small").json()
    assert shown_model["held_out"] == second
    parameters = statement(installation, request)["method"]["parameters"]
    after = f"accuracy {second['value']} on {HELD} rows"
    assert parameters["heldOutBefore"] == f"accuracy {first['held_out']['value']} on 24 rows"
    assert parameters["heldOutAfter"] == after
    assert parameters["heldOutJudged"] == f"{after}, as published"
    installation.check()


def statement(installation: Installation, request: str) -> Any:
    """Return the predicate of a request's certificate."""
    from lethe.certificates.bundle import parse_bundle

    file = installation.caller.http.get(f"/v1/requests/{request}/certificate")
    assert file.status_code == 200, file.text
    return json.loads(parse_bundle(file.content).dsse_envelope.payload)["predicate"]


def test_they_are_deleted_with_their_model(installation: Installation) -> None:
    ready(installation)
    assert len(stored(installation)) == 1
    answer = installation.caller.operator("DELETE", "/v1/models/small")
    assert answer.status_code == 200, answer.text
    assert stored(installation) == []
    assert len(versions(installation)) == 1
    installation.check()
