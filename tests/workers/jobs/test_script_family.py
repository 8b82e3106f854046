"""Programs from a signed request to a certificate; the oracle is numpy's least squares."""

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load
from sqlmodel import Session, select

from models import Model
from tests.installation import Installation
from tests.small import pack
from tests.workers.jobs import networks
from tests.workers.jobs.test_recipe_family import published, retained, rows, submit
from tests.workers.training.programs_of_tests import NOISE, script

MODEL, COLUMNS = "churn", 4
CHECKS = ["model-file", "data", "retained-set", "purge", "registration"]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: what a program stores goes through the same calls as all rows."""
    return sqlite_url


def register(installation: Installation, document: dict[str, Any]) -> None:
    """Register a program and run it."""
    manifest = {
        "family": "script",
        "ref": MODEL,
        "classes": ["no", "maybe", "yes"],
        "columns": COLUMNS,
        "script": document,
    }
    assert installation.caller.register_key().status_code in (200, 201)
    answer = installation.caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", pack(rows()))},
        data={"manifest": json.dumps(manifest)},
    )
    assert answer.status_code == 201, answer.text
    installation.drain()


def weights_without(installation: Installation, *gone: str) -> Any:
    features, labels = retained(installation, rows(), gone)
    return np.linalg.lstsq(features, labels.astype(float), rcond=None)[0]


def test_an_erasure_is_a_run_on_what_remains(installation: Installation) -> None:
    register(installation, script())
    assert networks.model(installation).state == "ready", networks.model(installation).failure
    assert np.array_equal(
        load(published(installation))["weights"], weights_without(installation)
    )
    request = submit(installation, "r3", "r8")
    installation.drain()
    assert networks.request(installation, request).state == "certified"
    mine = load(published(installation))
    assert np.array_equal(mine["weights"], weights_without(installation, "r3", "r8"))
    assert mine["seed"].tolist() == [7]
    found = networks.statement(installation, request).predicate
    assert found.guarantee.class_ == "exact-retrained"
    assert [check.name for check in found.checks] == [*CHECKS, "re-execution", "rows-before"]
    assert found.method.parameters["numpy"] == np.__version__
    installation.check()


def test_unequal_runs_are_the_weaker_class(installation: Installation) -> None:
    register(installation, script(noise=NOISE, tolerance=1e-4))
    assert networks.model(installation).state == "ready", networks.model(installation).failure
    request = submit(installation, "r3", "r8")
    installation.drain()
    assert networks.request(installation, request).state == "certified"
    found = networks.statement(installation, request).predicate
    assert found.guarantee.class_ == "retrained"
    assert [check.name for check in found.checks] == [
        *CHECKS,
        "rerun-difference",
        "rows-before",
    ]
    (check,) = [one for one in found.checks if one.name == "rerun-difference"]
    assert 0 < float(check.value) < 1e-5
    assert check.threshold == "at most 0.0001, the registered tolerance"
    assert float(found.method.parameters["difference.before"]) > 1e-4
    mine = load(published(installation))["weights"]
    assert np.allclose(mine, weights_without(installation, "r3", "r8"), rtol=1e-5)
    installation.check()


def test_unequal_runs_without_a_tolerance_are_no_registration(
    installation: Installation,
) -> None:
    register(installation, script(noise=NOISE))
    found = networks.model(installation)
    assert found.state == "failed"
    assert "two runs on the same rows differ by" in (found.failure or "")
    assert networks.versions(installation) == []
    with Session(installation.services.engine) as session:
        assert session.exec(select(Model)).one().current_version is None
    installation.check()
