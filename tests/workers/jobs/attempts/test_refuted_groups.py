"""Requests executed together: a row left in by one refutes all, and all are redone.

One test for each family of tables; the oracles are those of the families' own tests.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from lethe.estimators import ExactRidgeRegressor
from lethe.estimators.forest.forest import Forest
from lethe.estimators.sums.ridge import RidgeSums
from tests.installation import Installation
from tests.workers.jobs.families import (
    test_forest_family,
    test_recipe_family,
    test_script_family,
    test_shards_family,
    test_sums_family,
    test_vectors_family,
    uploaded,
)
from tests.workers.jobs.families.network import networks
from tests.workers.training.programs.small import script
from workers.jobs import execute
from workers.training.programs import run
from workers.training.recipes import process
from workers.training.recipes.fit import FitRows
from workers.training.recipes.fit import fit as fit_here

GONE = ["r1", "r2", "r3"]
PASSAGES = ["passage-001", "passage-002", "passage-003"]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: tests/workers/jobs/test_batch covers the statements of a batch."""
    return sqlite_url


@pytest.fixture(autouse=True)
def fits_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit in this process: another takes seconds to start."""

    def execute_here(config: Any, table: FitRows, limits: Any) -> bytes:
        targets = table.labels.astype(float)
        return save({"weights": np.linalg.lstsq(table.features, targets, rcond=None)[0]})

    monkeypatch.setattr(run, "execute", execute_here)
    monkeypatch.setattr(
        process, "fit", lambda recipe, table, threads, limits: fit_here(recipe, table, threads)
    )
    monkeypatch.setattr(
        process,
        "fit_all",
        lambda recipe, tables, threads, limits: [
            fit_here(recipe, one, threads) for one in tables
        ],
    )


def with_row(table: FitRows, arrays: dict[str, Any]) -> FitRows:
    """Return the rows with that of the second request."""
    features = np.vstack([table.features, arrays["features"][2:3]])
    return FitRows(features, np.append(table.labels, arrays["labels"][2]))


def in_sums(patch: pytest.MonkeyPatch) -> None:
    honest = RidgeSums.changed

    def lazy(sums: RidgeSums, coded: Any, sign: int) -> RidgeSums:
        places = np.arange(len(coded.targets))
        return honest(sums, coded.take(places != 1) if sign < 0 else coded, sign)

    patch.setattr(RidgeSums, "changed", lazy)


def in_forest(patch: pytest.MonkeyPatch) -> None:
    honest = Forest.remove
    patch.setattr(Forest, "remove", lambda forest, ids: honest(forest, [*ids][:-1]))


def in_recipe(patch: pytest.MonkeyPatch) -> None:
    honest, arrays = process.fit, uploaded.rows()
    patch.setattr(
        process,
        "fit",
        lambda recipe, table, *more: honest(recipe, with_row(table, arrays), *more),
    )


def in_script(patch: pytest.MonkeyPatch) -> None:
    honest, arrays = run.execute, uploaded.rows()
    patch.setattr(
        run,
        "execute",
        lambda config, table, most: honest(config, with_row(table, arrays), most),
    )


def in_shards(patch: pytest.MonkeyPatch) -> None:
    honest, arrays = process.fit_all, uploaded.rows()
    patch.setattr(
        process,
        "fit_all",
        lambda recipe, tables, *more: honest(
            recipe, [with_row(tables[0], arrays), *tables[1:]], *more
        ),
    )


def in_vectors(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("workers.training.vectors.build.drop", test_vectors_family.left_in)


def sums_are(installation: Installation) -> bool:
    arrays = test_sums_family.rows(numbers=True)
    theirs = test_sums_family.refitted(ExactRidgeRegressor(), arrays, GONE)
    return uploaded.published(installation) == theirs


def forest_is(installation: Installation) -> bool:
    theirs = test_forest_family.oracle(uploaded.rows(), GONE)
    return uploaded.published(installation) == theirs


def recipe_is(installation: Installation) -> bool:
    arrays = uploaded.rows()
    theirs = test_recipe_family.oracle(*test_recipe_family.retained(installation, arrays, GONE))
    test_recipe_family.check_is(installation, theirs, arrays["features"])
    return True


def script_is(installation: Installation) -> bool:
    mine = load(uploaded.published(installation))["weights"]
    return np.array_equal(mine, test_script_family.weights_without(installation, *GONE))


def shards_are(installation: Installation) -> bool:
    test_shards_family.check_is(installation, GONE)
    return True


def index_is(installation: Installation) -> bool:
    test_vectors_family.check_rest(installation, "flat", PASSAGES)
    return True


@dataclass(frozen=True)
class Group:
    """How a family registers and erases; plant leaves a row in, right compares with a refit."""

    register: Callable[[Installation], None]
    submit: Callable[..., str]
    plant: Callable[[pytest.MonkeyPatch], None]
    right: Callable[[Installation], bool]
    records: Sequence[str] = tuple(GONE)


GROUPS = {
    "sums": Group(
        lambda one: test_sums_family.register(
            one,
            test_sums_family.rows(numbers=True),
            classes=[],
            sums={"estimator": "ridge-regressor"},
        ),
        uploaded.submit,
        in_sums,
        sums_are,
    ),
    "forest": Group(test_forest_family.register, uploaded.submit, in_forest, forest_is),
    "recipe": Group(test_recipe_family.register, uploaded.submit, in_recipe, recipe_is),
    "script": Group(
        lambda one: test_script_family.register(one, script()),
        uploaded.submit,
        in_script,
        script_is,
    ),
    "shards": Group(test_shards_family.register, uploaded.submit, in_shards, shards_are),
    "vectors": Group(
        test_vectors_family.register,
        uploaded.submit,
        in_vectors,
        index_is,
        PASSAGES,
    ),
}


@pytest.mark.parametrize("family", GROUPS)
def test_one_row_left_in_refutes_the_group(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    group = GROUPS[family]
    group.register(installation)
    with monkeypatch.context() as patch:
        group.plant(patch)
        requests = [group.submit(installation, record) for record in group.records]
        job_id, stage = installation.dispatcher.nudges.popleft()
        assert stage == "execute"
        execute.run(installation.services, job_id)
        assert networks.model(installation).current_version == 2  # for all three
    installation.drain()
    for request in requests:
        assert "escalated" in networks.events(installation, request)
        assert networks.request(installation, request).state == "certified"
    assert group.right(installation)
    installation.check()
