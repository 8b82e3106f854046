"""Programs from a signed request to a certificate; the oracle is numpy's least squares."""

import json
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save
from sqlalchemy import text
from sqlmodel import Session, select

from app import steps
from models import Model
from tests.installation import Installation, shown
from tests.workers.jobs.families import uploaded
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.families.test_recipe_family import retained
from tests.workers.jobs.families.uploaded import (
    COLUMNS,
    published,
    refuted,
    rows,
    submit,
)
from tests.workers.training.programs.small import NOISE, script
from workers.judge.checks import guarded, result_of
from workers.judge.refitted import DIFFERENCE, RerunClaim, check_difference
from workers.training.isolation import confinement
from workers.training.programs import run
from workers.training.programs.program import OtherEnvironmentError
from workers.training.recipes.fit import FitRows
from workers.training.recipes.process import Limits

MANIFEST = {
    "family": "script",
    "classes": ["no", "maybe", "yes"],
    "columns": COLUMNS,
}
HONEST = run.execute
CHECKS = ["model-file", "data", "retained-set", "purge", "registration"]


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: a program uses the same calls as all rows."""
    return sqlite_url


def register(
    installation: Installation,
    document: dict[str, Any],
    arrays: dict[str, Any] | None = None,
    **columns: Any,
) -> None:
    """Register a program and run it."""
    manifest = {**MANIFEST, "script": document, **columns}
    uploaded.take(installation, uploaded.send(installation, manifest, arrays or rows()))


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


WEIGHTED = """\
import json
import sys

import numpy as np
import pyarrow.ipc
from safetensors.numpy import save_file

table = pyarrow.ipc.open_file(sys.argv[1]).read_all()
names = json.loads(table.schema.metadata[b"features"])
texts = json.loads(table.schema.metadata[b"categories"])
place = names.index("plan")
values = [texts["plan"][int(one)] for one in table[f"f{place}"].to_pylist()]
costs = np.array([{"small": 1.0, "large": 5.0}[one] for one in values])
weights = table["weight"].to_numpy()
save_file({"mean": np.array([np.average(costs, weights=weights)])}, sys.argv[2])
"""


def test_a_program_is_given_weights_names_and_categories(installation: Installation) -> None:
    arrays = {
        **rows(),
        "weights": np.random.default_rng(1).uniform(0.1, 3, len(rows()["labels"])),
    }
    arrays["features"][:, 1] = np.arange(len(arrays["labels"])) % 2
    names = ["age", "plan", "calls", "months"]
    columns = {"features": names, "categories": {"plan": ["small", "large"]}, "weighted": True}
    register(installation, script(WEIGHTED), arrays, **columns)
    assert networks.model(installation).state == "ready", networks.model(installation).failure
    request = submit(installation, "r3", "r8")
    installation.drain()
    assert networks.request(installation, request).state == "certified"
    kept = [place for place, one in enumerate(arrays["records"]) if one not in ("r3", "r8")]
    costs = np.where(arrays["features"][kept, 1] == 0, 1.0, 5.0)
    found = load(published(installation))["mean"]
    assert found == pytest.approx([np.average(costs, weights=arrays["weights"][kept])])
    assert found != pytest.approx([costs.mean()])


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


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Run the program's arithmetic in this process, and return the numbers of rows."""
    counted: list[int] = []

    def execute(config: dict[str, Any], table: FitRows, limits: Limits) -> bytes:
        counted.append(len(table))
        weights = np.linalg.lstsq(table.features, table.labels.astype(float), rcond=None)[0]
        return save({"weights": weights})

    monkeypatch.setattr(run, "execute", execute)
    return counted


def test_unequal_runs_without_a_tolerance_are_no_registration(
    installation: Installation, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = run.execute

    def execute(config: dict[str, Any], table: FitRows, limits: Limits) -> bytes:
        found = load(honest(config, table, limits))
        return save({"weights": found["weights"] * (1 + len(runs) * 1e-7)})

    monkeypatch.setattr(run, "execute", execute)
    register(installation, script())
    found = networks.model(installation)
    assert found.state == "failed"
    assert "two runs on the same rows differ by" in (found.failure or "")
    assert networks.versions(installation) == []
    with Session(installation.services.engine) as session:
        assert session.exec(select(Model)).one().current_version is None
    installation.check()


@pytest.mark.parametrize(
    ("tolerance", "check"), [(None, "re-execution"), (1e-6, "rerun-difference")]
)
def test_a_run_that_kept_a_record_is_refuted(
    installation: Installation,
    runs: list[int],
    monkeypatch: pytest.MonkeyPatch,
    tolerance: float | None,
    check: str,
) -> None:
    register(installation, script(tolerance=tolerance))
    honest = run.execute
    dishonest: list[int] = []

    def execute(config: dict[str, Any], table: FitRows, limits: Limits) -> bytes:
        if not dishonest:
            dishonest.append(1)
            first = rows()
            features = np.concatenate([table.features, first["features"][:1]])
            table = FitRows(features, np.concatenate([table.labels, first["labels"][:1]]))
        return honest(config, table, limits)

    monkeypatch.setattr(run, "execute", execute)
    request = submit(installation, "r0")
    installation.drain()
    assert check in refuted(installation, request)
    assert networks.request(installation, request).state == "certified"  # by the second run
    mine = load(published(installation))["weights"]
    assert np.array_equal(mine, weights_without(installation, "r0"))


def test_an_erased_row_hidden_beside_the_tensors_is_refuted(
    installation: Installation, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's own file has it as spaces and tabs after the header, which JSON ignores."""
    honest = run.execute
    secret = "".join(f"{one:08b}" for one in rows()["features"][3].tobytes())
    hidden = secret.replace("0", " ").replace("1", "\t").encode()

    def execute(config: dict[str, Any], table: FitRows, limits: Limits) -> bytes:
        file = honest(config, table, limits)
        if len(runs) != 3:  # two runs of the registration, then the worker's, then the judge's
            return file
        size = int.from_bytes(file[:8], "little")
        header = file[8 : 8 + size] + hidden
        return len(header).to_bytes(8, "little") + header + file[8 + size :]

    monkeypatch.setattr(run, "execute", execute)
    register(installation, script(tolerance=1e-4))
    request = submit(installation, "r3")
    installation.drain()
    assert "rerun-difference" in refuted(installation, request)
    assert networks.request(installation, request).state == "certified"  # by the second run
    assert hidden not in published(installation)
    assert np.array_equal(
        load(published(installation))["weights"], weights_without(installation, "r3")
    )


def test_another_program_than_registered_publishes_nothing(
    installation: Installation, runs: list[int]
) -> None:
    register(installation, script())
    request = submit(installation, "r0")
    config = dict(networks.model(installation).config)
    files = {**config["script"]["files"], "train.py": "another's"}
    config["script"] = {**config["script"], "files": files}
    with installation.services.engine.begin() as connection:
        connection.execute(
            text("UPDATE models SET config = :config"), {"config": json.dumps(config)}
        )
    installation.drain()
    assert shown(installation, request)["state"] == "needs-decision"
    assert len(networks.versions(installation)) == 1


def test_a_judge_with_other_versions_decides_nothing(
    installation: Installation, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    register(installation, script())
    request = submit(installation, "r0")

    def other(*_: Any) -> bytes:
        raise OtherEnvironmentError("lock.txt names numpy 1, which is 2 on this worker")

    def elsewhere(step: str) -> None:
        if step == "verify.leased":
            monkeypatch.setattr(run, "execute", other)

    steps.install(elsewhere)
    try:
        installation.drain()
    finally:
        steps.install(None)
    found = networks.request(installation, request).state
    assert found not in ("certified", "refused"), found
    assert "verified" not in networks.events(installation, request)


def test_the_certificate_names_each_file(installation: Installation, runs: list[int]) -> None:
    register(installation, script())
    request = submit(installation, "r0")
    installation.drain()
    found = networks.statement(installation, request).predicate
    text_of = networks.model(installation).config["script"]["files"]
    for name in ("train.py", "lock.txt"):
        digest = sha256(text_of[name].encode()).hexdigest()
        assert found.method.parameters[f"script.{name}"] == digest


WEIGHTS = {"a": np.array([1.0, -2.0]), "n": np.array([3])}


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({}, "PASS"),
        ({"own": {**WEIGHTS, "a": np.array([1.0, -2.0019])}}, "PASS"),
        ({"own": {**WEIGHTS, "a": np.array([1.0, -2.0021])}}, "FAIL"),
        ({"own": {**WEIGHTS, "n": np.array([4])}}, "FAIL"),
        ({"own": {**WEIGHTS, "a": np.array([1.0, np.nan])}}, "FAIL"),
        ({"own": {**WEIGHTS, "a": np.array([[1.0, -2.0]])}}, "FAIL"),
        ({"own": {**WEIGHTS, "a": np.array([1.0, -2.0], np.float32)}}, "FAIL"),
        ({"own": {"a": WEIGHTS["a"]}}, "FAIL"),
        ({"published": {**WEIGHTS, "more": np.zeros(1)}}, "FAIL"),
        ({"published": None}, "FAIL"),
        ({"published": None, "elsewhere": True}, "FAIL"),
        ({"own": None}, "FAIL"),
        ({"tolerance": float("nan")}, "FAIL"),
        ({"tolerance": 0.0}, "FAIL"),
        ({"tolerance": 5.0}, "FAIL"),
        ({"tolerance": "x"}, "FAIL"),
        ({"own": {**WEIGHTS, "a": np.zeros(2)}, "elsewhere": True}, "INCONCLUSIVE"),
    ],
)
def test_the_difference_is_held_to_the_tolerance(changes: dict[str, Any], result: str) -> None:
    more = dict(changes)
    here = not more.pop("elsewhere", False)
    refit: Any = SimpleNamespace(environment_equal=here)
    whole = {"published": WEIGHTS, "own": WEIGHTS, "tolerance": 1e-3, **more}
    found = guarded(DIFFERENCE, lambda: check_difference(RerunClaim(refit, **whole)))
    assert result_of([found]) == result


def test_what_is_no_registration(installation: Installation) -> None:
    files = script()["files"]
    for changes, field in (
        ({"entry": "other.py"}, "script"),
        ({"entry": "lock.txt"}, "script"),
        ({"files": {**files, "../x": ""}}, "files"),
        ({"files": {**files, "/etc/x": ""}}, "files"),
        ({"files": {**files, "train.py/x": ""}}, "script"),
        ({"files": {**files, "big.py": "x" * (1 << 17)}}, "script"),
        ({"output": "pickle"}, "output"),
        ({"tolerance": 0}, "tolerance"),
        ({"tolerance": 1}, "tolerance"),
        ({"more": 1}, "unknown field"),
    ):
        document = {**script(), **changes}
        answer = uploaded.send(installation, {**MANIFEST, "script": document}, rows())
        assert answer.status_code in (400, 422), (changes, answer.text)
        assert field in answer.text, answer.text
    with Session(installation.services.engine) as session:
        assert session.exec(select(Model)).first() is None


def test_a_machine_that_cannot_isolate_refuses_registrations_and_no_erasure(
    installation: Installation, runs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(run, "execute", HONEST)
        patch.setattr(confinement, "landlock_abi", lambda: 0)
        register(installation, script())
        found = networks.model(installation)
        assert (found.state, networks.versions(installation)) == ("failed", [])
        assert "Landlock is missing" in (found.failure or "")
    register(installation, script())
    request = submit(installation, "r0")
    with monkeypatch.context() as patch:
        patch.setattr(run, "execute", HONEST)
        patch.setattr(confinement, "landlock_abi", lambda: 0)
        installation.drain()
        assert networks.request(installation, request).state not in ("refused", "certified")
    assert len(networks.versions(installation)) == 1
    installation.recover()
    assert networks.request(installation, request).state == "certified"
