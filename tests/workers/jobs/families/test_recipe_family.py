"""Recipes from a signed request to a certificate; the oracle fits with the library alone."""

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import lightgbm
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sqlalchemy import text
from sqlmodel import Session, select

from app import steps
from lethe.certificates.evidence import record_commitment
from lethe.signing.keys import generate_key
from models import Artifact, Model, Record
from tests.installation import Installation, shown
from tests.small import pack
from tests.workers.jobs.families import uploaded
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.families.uploaded import (
    COLUMNS,
    MODEL,
    ROWS,
    published,
    refuted,
    rows,
    submit,
)
from workers.families.recipe import case as recipe_case
from workers.families.recipe import family as recipe_family
from workers.families.recipe import rows as recipe_rows
from workers.judge.refitted import VERIFIER, RefittedClaim
from workers.training.recipes import process
from workers.training.recipes.files import FittedRecipe, decode, encode
from workers.training.recipes.fit import FitRows
from workers.training.recipes.fit import fit as fit_here
from workers.training.recipes.process import FitError, Limits
from workers.training.recipes.recipe import Recipe

FOREST = {
    "estimator": "sklearn.ensemble.RandomForestClassifier",
    "parameters": {"n_estimators": 4, "max_features": 1.0},
    "seed": 5,
}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: a recipe uses the same calls as all rows."""
    return sqlite_url


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Fit in this process, and return the numbers of rows: a process takes seconds to start."""
    counted: list[int] = []

    def fit(recipe: Recipe, table: FitRows, threads: int, limits: Limits) -> bytes:
        counted.append(len(table))
        return fit_here(recipe, table, threads)

    monkeypatch.setattr(process, "fit", fit)
    return counted


def register(
    installation: Installation,
    recipe: dict[str, Any] = FOREST,
    arrays: dict[str, Any] | None = None,
    **changes: Any,
) -> None:
    """Register a recipe and fit it."""
    manifest = {
        "family": "recipe",
        "classes": ["no", "maybe", "yes"],
        "columns": COLUMNS,
        "recipe": recipe,
        **changes,
    }
    uploaded.take(installation, uploaded.send(installation, manifest, arrays or rows()))


def retained(
    installation: Installation, arrays: dict[str, Any], gone: Sequence[str]
) -> tuple[Any, Any]:
    """Return features and labels of the retained rows, in the order of their commitments."""
    with Session(installation.services.engine) as session:
        salts = {one.record: bytes(one.salt) for one in session.exec(select(Record))}
    kept = [i for i, record in enumerate(arrays["records"]) if record not in gone]
    assert salts.keys() == {str(arrays["records"][i]) for i in kept}
    names = arrays["records"]
    kept.sort(key=lambda i: record_commitment(salts[str(names[i])], str(names[i])))
    return arrays["features"][kept], arrays["labels"][kept]


def oracle(features: Any, labels: Any) -> Any:
    """Fit the registered forest with scikit-learn alone."""
    made = RandomForestClassifier(n_estimators=4, max_features=1.0, random_state=5)
    return made.fit(features, labels)


def check_is(installation: Installation, theirs: Any, features: Any) -> None:
    """Check that the published model equals another fit's, in bytes and in predictions."""
    file = published(installation)
    read = decode(file)
    assert np.array_equal(read.predict(features), theirs.predict(features))
    again = FittedRecipe(read.recipe, read.columns, read.classes, theirs)
    assert encode(again) == file


def test_an_erasure_is_a_refit_on_what_remains(installation: Installation) -> None:
    """In separate processes: two for the registration, one for the erasure, one to judge."""
    register(installation)
    assert networks.model(installation).state == "ready", networks.model(installation).failure
    arrays = rows()
    check_is(installation, oracle(*retained(installation, arrays, [])), arrays["features"])
    request = submit(installation, "r3", "r8")
    installation.drain()
    assert networks.request(installation, request).state == "certified"
    gone = ["r3", "r8"]
    check_is(installation, oracle(*retained(installation, arrays, gone)), arrays["features"])
    found = networks.statement(installation, request).predicate
    assert found.guarantee.class_ == "exact-retrained"
    assert [check.name for check in found.checks] == [
        "model-file",
        "data",
        "retained-set",
        "purge",
        "registration",
        "re-execution",
        "rows-before",
    ]
    assert found.method.id == "refit"
    assert found.method.parameters["scikit-learn"] == metadata.version("scikit-learn")
    assert found.method.parameters["estimator"] == FOREST["estimator"]
    installation.check()


def test_requests_that_wait_are_fitted_and_judged_together(
    installation: Installation, fits: list[int]
) -> None:
    register(installation)
    fits.clear()
    ids = [submit(installation, f"r{i}") for i in range(6)]
    installation.drain()
    assert [networks.request(installation, one).state for one in ids] == ["certified"] * 6
    assert fits == [ROWS - 6, ROWS - 6]  # one fit for the erasure, one for the judge
    gone = [f"r{i}" for i in range(6)]
    arrays = rows()
    check_is(installation, oracle(*retained(installation, arrays, gone)), arrays["features"])
    installation.check()


def test_a_pipeline_of_numbers(installation: Installation, fits: list[int]) -> None:
    steps = [
        {"estimator": "sklearn.preprocessing.StandardScaler"},
        {"estimator": "sklearn.linear_model.Ridge", "parameters": {"alpha": 0.5}},
    ]
    arrays = rows(numbers=True)
    register(installation, {"steps": steps}, arrays, classes=[])
    request = submit(installation, "r1")
    installation.drain()
    assert networks.request(installation, request).state == "certified"
    features, labels = retained(installation, arrays, ["r1"])
    theirs = make_pipeline(StandardScaler(), Ridge(alpha=0.5)).fit(features, labels)
    found = decode(published(installation)).predict(arrays["features"])
    assert np.array_equal(found, theirs.predict(arrays["features"]))


def test_missing_values_and_the_last_of_a_class(
    installation: Installation, fits: list[int]
) -> None:
    arrays = rows()
    arrays["features"][::4, 2] = np.nan
    last = np.flatnonzero(arrays["labels"] == 2)
    arrays["labels"][last[1:]] = 0  # one row of the class is left
    recipe = {"estimator": "lightgbm.LGBMClassifier", "parameters": {"n_estimators": 3}}
    register(installation, recipe, arrays)
    request = submit(installation, f"r{last[0]}")
    installation.drain()
    assert networks.request(installation, request).state == "certified"
    features, labels = retained(installation, arrays, [f"r{last[0]}"])
    model = lightgbm.LGBMClassifier(
        n_estimators=3,
        random_state=0,
        n_jobs=1,
        deterministic=True,
        force_row_wise=True,
        verbose=-1,
    ).fit(features, labels)
    read = decode(published(installation))
    assert read.classes == (0, 1)
    mine = read.estimator.predict_proba(features)
    assert np.array_equal(mine, model.predict_proba(features))


def test_a_contribution_is_fitted_with_what_is_there(
    installation: Installation, fits: list[int]
) -> None:
    whole = rows()
    first = {name: array[:60] for name, array in whole.items()}
    rest = {name: array[60:] for name, array in whole.items()}
    register(installation, arrays=first)
    client = replace(installation.caller, keyid="sender", key=generate_key("ed25519"))
    assert client.register_key(role="client").status_code == 201
    path, kind = f"/v1/models/{MODEL}/contributions", "application/x-npz"
    answer = client.signed("POST", path, pack(rest), content_type=kind)
    assert answer.status_code == 202, answer.text
    installation.drain()
    check_is(installation, oracle(*retained(installation, whole, [])), whole["features"])
    request = submit(installation, "r1", "r70")  # one each, of blocks that were joined
    installation.drain()
    assert networks.request(installation, request).state == "certified"
    gone = ["r1", "r70"]
    check_is(installation, oracle(*retained(installation, whole, gone)), whole["features"])


def test_weights_are_part_of_each_fit(installation: Installation, fits: list[int]) -> None:
    """Registration, contribution, erasure and the judge's fit; the oracle has them too."""
    whole = {**rows(), "weights": np.random.default_rng(1).uniform(0.1, 3, ROWS)}
    first = {name: array[:60] for name, array in whole.items()}
    rest = {name: array[60:] for name, array in whole.items()}
    register(installation, arrays=first, weighted=True)
    client = replace(installation.caller, keyid="sender", key=generate_key("ed25519"))
    assert client.register_key(role="client").status_code == 201
    path, kind = f"/v1/models/{MODEL}/contributions", "application/x-npz"
    plain = {name: array for name, array in rest.items() if name != "weights"}
    refused = client.signed("POST", path, pack(plain), content_type=kind)
    assert refused.status_code == 422, refused.text
    assert "weights" in refused.text
    shown = client.signed("GET", f"/v1/models/{MODEL}/manifest").json()
    assert (shown["family"], shown["weighted"], shown["columns"]) == ("recipe", True, COLUMNS)
    answer = client.signed("POST", path, pack(rest), content_type=kind)
    assert answer.status_code == 202, answer.text
    installation.drain()
    request = submit(installation, "r1", "r70")
    installation.drain()
    assert networks.request(installation, request).state == "certified"
    names = {record: place for place, record in enumerate(whole["records"])}
    with Session(installation.services.engine) as session:
        salts = {one.record: bytes(one.salt) for one in session.exec(select(Record))}
    assert set(names) - set(salts) == {"r1", "r70"}
    order = sorted(salts, key=lambda one: record_commitment(salts[one], one))
    kept = [names[one] for one in order]
    parameters: Any = FOREST["parameters"]
    estimator = RandomForestClassifier(**parameters, random_state=FOREST["seed"])
    weights = whole["weights"][kept]
    theirs = estimator.fit(
        whole["features"][kept], whole["labels"][kept], sample_weight=weights
    )
    mine = decode(published(installation)).probabilities(whole["features"])
    np.testing.assert_array_equal(mine, theirs.predict_proba(whole["features"]))
    unweighted = estimator.fit(whole["features"][kept], whole["labels"][kept])
    assert not np.array_equal(mine, unweighted.predict_proba(whole["features"]))


def test_the_last_row_goes_too(installation: Installation, fits: list[int]) -> None:
    arrays = {name: array[:4] for name, array in rows().items()}
    register(installation, arrays=arrays)
    request = submit(installation, "r0", "r1", "r2", "r3")
    installation.drain()
    assert networks.request(installation, request).state == "certified"
    assert decode(published(installation)).estimator is None


@pytest.mark.parametrize(
    ("recipe", "changes", "said"),
    [
        ({**FOREST, "parameters": {"trees": 3}}, {}, "trees of"),
        ({**FOREST, "parameters": {"n_jobs": 3}}, {}, "n_jobs of"),
        ({**FOREST, "parameters": {"max_depth": "x"}}, {}, "'max_depth' parameter"),
        ({"estimator": "sklearn.naive_bayes.MultinomialNB"}, {}, "Negative values"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_its_name(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    recipe: dict[str, Any],
    changes: dict[str, Any],
    said: str,
) -> None:
    register(installation, recipe, **changes)
    found = networks.model(installation)
    assert (found.state, said in (found.failure or "")) == ("failed", True), found.failure
    assert networks.versions(installation) == []
    installation.check()


@pytest.mark.parametrize(
    "changes",
    [
        {"recipe": {"estimator": "os.system"}},
        {"recipe": {"estimator": "sklearn.svm.SVC"}},
        {"recipe": {"estimator": "sklearn.preprocessing.StandardScaler"}},
        {"recipe": {}},
        {"recipe": {**FOREST, "steps": [FOREST]}},
        {"recipe": {**FOREST, "more": 1}},
        {"recipe": {**FOREST, "parameters": {"class_weight": {"0": 1}}}},
        {"classes": []},
        {"classes": ["a", "a"]},
        {"columns": 5},
        {"recipe": {"estimator": "sklearn.linear_model.Ridge"}},
    ],
)
def test_what_is_no_registration(installation: Installation, changes: dict[str, Any]) -> None:
    manifest = {
        "family": "recipe",
        "classes": ["no", "maybe", "yes"],
        "columns": COLUMNS,
        "recipe": FOREST,
        **changes,
    }
    answer = uploaded.send(installation, manifest, rows())
    assert answer.status_code in (400, 422), answer.text
    with Session(installation.services.engine) as session:
        assert session.exec(select(Model)).first() is None


def test_a_refit_that_kept_a_record_is_refuted(
    installation: Installation, fits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    register(installation)
    before: list[int] = []
    kept: list[Any] = []

    def dishonest(blocks: Any, salts: Any, model: Any) -> FitRows:
        found = recipe_rows.table(blocks, salts, model)
        if not before:
            before.append(1)
            spare = rows()
            kept.append(1)
            return FitRows(
                np.concatenate([found.features, spare["features"][:1]]),
                np.concatenate([found.labels, spare["labels"][:1]]),
            )
        return found

    monkeypatch.setattr(recipe_family, "table", dishonest)
    request = submit(installation, "r0")
    installation.drain()
    assert kept
    assert "re-execution" in refuted(installation, request)
    assert networks.request(installation, request).state == "certified"  # by the second fit
    arrays = rows()
    check_is(installation, oracle(*retained(installation, arrays, ["r0"])), arrays["features"])


def test_a_model_file_with_another_byte_is_refuted(
    installation: Installation, fits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    register(installation)
    honest = process.fit
    once: list[int] = []

    def flipped(recipe: Recipe, table: FitRows, threads: int, limits: Limits) -> bytes:
        data = bytearray(honest(recipe, table, threads, limits))
        if not once:
            once.append(1)
            data[-1] ^= 1
        return bytes(data)

    monkeypatch.setattr(process, "fit", flipped)
    request = submit(installation, "r0")
    installation.drain()
    assert "re-execution" in refuted(installation, request)
    assert networks.request(installation, request).state == "certified"


def test_another_recipe_than_registered_publishes_nothing(
    installation: Installation, fits: list[int]
) -> None:
    """1.0 is a share of the columns, 1 is one column: the log distinguishes them."""
    register(installation)
    request = submit(installation, "r0")
    config = dict(networks.model(installation).config)
    step = config["recipe"]["steps"][0]
    assert step["parameters"]["max_features"] == {"float": "1.0"}
    changed = {**step, "parameters": {**step["parameters"], "max_features": 1}}
    config["recipe"] = {**config["recipe"], "steps": [changed]}
    with installation.services.engine.begin() as connection:
        connection.execute(
            text("UPDATE models SET config = :config"), {"config": json.dumps(config)}
        )
    installation.drain()
    assert shown(installation, request)["state"] == "needs-decision"
    assert len(networks.versions(installation)) == 1


def claims(monkeypatch: pytest.MonkeyPatch) -> list[RefittedClaim]:
    seen: list[RefittedClaim] = []
    honest = VERIFIER

    def verify(claim: RefittedClaim) -> Any:
        seen.append(claim)
        return honest.verify(claim)

    spy = SimpleNamespace(id=honest.id, version=honest.version, verify=verify)
    monkeypatch.setattr(recipe_case, "VERIFIER", spy)
    return seen


def test_each_part_of_a_claim_is_checked(
    installation: Installation, fits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = claims(monkeypatch)
    register(installation)
    submit(installation, "r0")
    installation.drain()
    (claim,) = seen
    assert VERIFIER.verify(claim).result == "PASS"
    other = "ab" * 32
    cases: list[tuple[dict[str, Any], str]] = [
        ({"file_digest": other}, "model-file"),
        ({"data": other}, "data"),
        ({"registration": (claim.registration[0], other)}, "registration"),
        ({"refitted_digest": other}, "re-execution"),
        ({"refitted_digest": ""}, "re-execution"),
        ({"rows_before": (other, claim.rows_before[1])}, "rows-before"),
    ]
    for changes, failed in cases:
        report = VERIFIER.verify(replace(claim, **changes))
        assert report.result == "FAIL"
        assert [one.name for one in report.checks if not one.passed] == [failed]
    elsewhere = replace(claim, refitted_digest=other, environment_equal=False)
    assert VERIFIER.verify(elsewhere).result == "INCONCLUSIVE"


def test_another_machine_decides_nothing_and_leaves_the_second_attempt(
    installation: Installation, fits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    register(installation)
    honest = process.environment
    request = submit(installation, "r0")

    def elsewhere(step: str) -> None:
        if step == "verify.leased":
            monkeypatch.setattr(process, "environment", lambda recipe: {"processor": "other"})
            monkeypatch.setattr(process, "fit", lambda *_: b"other bytes")
        if step == "execute.leased":
            monkeypatch.setattr(process, "environment", honest)

    monkeypatch.setattr(process, "fit", process.fit)
    steps.install(elsewhere)
    try:
        installation.drain()
    finally:
        steps.install(None)
    assert "re-execution" in refuted(installation, request)
    assert shown(installation, request)["state"] != "certified"


def test_a_fit_that_fails_keeps_the_request_for_an_operator(
    installation: Installation, fits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request is refused because a limit is too low."""
    register(installation)
    honest = process.fit
    request = submit(installation, "r0")

    def fails(*_: Any) -> bytes:
        raise FitError("the fit took more than 1 s")

    monkeypatch.setattr(process, "fit", fails)
    installation.drain()
    for _ in range(installation.settings.max_tries):
        installation.recover()
    assert networks.request(installation, request).state != "refused"
    assert len(networks.versions(installation)) == 1
    monkeypatch.setattr(process, "fit", honest)
    installation.recover()
    assert networks.request(installation, request).state == "certified"


@pytest.mark.parametrize("step", ["execute.computed", "execute.written", "verify.judged"])
def test_a_worker_that_dies_is_followed_by_another(
    installation: Installation, fits: list[int], step: str
) -> None:
    register(installation)
    request = submit(installation, "r0", "r1")

    def die(reached: str) -> None:
        if reached == step:
            steps.install(None)
            raise steps.PlantedFaultError(step)

    steps.install(die)
    with pytest.raises(steps.PlantedFaultError):
        installation.drain()
    installation.recover()
    assert networks.request(installation, request).state == "certified"
    arrays, gone = rows(), ["r0", "r1"]
    check_is(installation, oracle(*retained(installation, arrays, gone)), arrays["features"])
    installation.check()


def test_nothing_of_the_erased_is_readable(installation: Installation, fits: list[int]) -> None:
    register(installation)
    submit(installation, "r0")
    installation.drain()
    number = networks.model(installation).current_version
    first = f"/v1/models/{MODEL}/versions/1/artifact"
    assert installation.caller.operator("GET", first).status_code == 410
    with Session(installation.services.engine) as session:
        left = session.exec(select(Artifact.kind).where(Artifact.wrapped_key != None)).all()  # noqa: E711
    assert "upload" not in left
    assert number == 2
