"""`lethe model register sums`: weights, numbers, and scores on held-out rows."""

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import Ridge

from app.schemas.families.sums import LARGEST_CODE, NewSums, bounds
from app.uploads.rows import parse_table
from app.uploads.values import Within
from lethe.errors import LetheError
from lethe.estimators.sums.fixed_point import MAX_CODE, WEIGHT_BITS
from lethe.estimators.sums.published import PublishedRidge, read_published
from models import Model
from tests.uploads import parsed
from tests.workers.cli.models.registering import FittingService
from workers.cli.models import command as model
from workers.families.sums.family import FAMILY
from workers.registration.sums import STEPS
from workers.training.recipes.fit import FitRows


class Service(FittingService):
    """Accepts a registration as the API does, and fits it here."""

    def fitted(self, manifest: dict[str, Any], data: bytes, rows: dict[str, Any]) -> bytes:
        wanted = NewSums.model_validate(manifest)
        pinned = wanted.pinned()
        parse = partial(
            parse_table,
            columns=wanted.columns,
            classes=len(wanted.classes),
            within=Within(*bounds(pinned["config"]), wanted.weighted),
            max_bytes=1 << 24,
        )
        parsed(data, parse)
        row = Model(ref="m", tombstone_key=b"", **pinned)
        table = FitRows(rows["features"], rows["labels"], rows.get("weights"))
        return FAMILY.fitted_file(row, table)  # type: ignore[attr-defined,no-any-return]


def register(estimator: str, *words: object) -> Result:
    arguments = ["register", "sums", estimator, "--url", "http://x", "--ref", "m", *words]
    return CliRunner().invoke(model.model, [str(word) for word in arguments])


def table(folder: Path, *, numbers: bool = False, **more: Any) -> Path:
    features, labels = (load_diabetes if numbers else load_iris)(return_X_y=True)
    columns = {f"f{number}": features[:, number] for number in range(4)}
    names = labels if numbers else np.array(["setosa", "versicolor", "virginica"])[labels]
    path = folder / "rows.parquet"
    pq.write_table(pa.table({**columns, "kind": names, **more}), path)
    return path


COLUMNS = ("--label", "kind", "--features", "f*")


def share(found: Result) -> float:
    return float(found.output.rpartition(": ")[2])


def test_classes_with_rounded_weights(tmp_path: Path, service: Service) -> None:
    weights = np.random.default_rng(0).random(150) + 0.1
    path = table(tmp_path, w=weights)
    found = register("gaussian-nb", path, *COLUMNS, "--sample-weight", "w")
    assert found.exit_code == 0, found.output
    assert "weights: w, rounded to multiples of 1/16" in found.output
    assert share(found) > 0.8
    places = [int(one.rpartition("-")[2]) for one in service.rows["records"].tolist()]
    assert np.abs(service.rows["weights"] - weights[places]).max() <= 1 / 32
    assert service.manifest["columns"] == 4
    assert len(service.manifest["features"]) == 4
    assert service.manifest["sums"] == {"estimator": "gaussian-nb"}


def test_numbers_with_the_intercept_of_scikit_learn(tmp_path: Path, service: Service) -> None:
    path = table(tmp_path, numbers=True)
    found = register("ridge-regressor", path, *COLUMNS, "--alpha", "0.01")
    assert found.exit_code == 0, found.output
    assert "R² on" in found.output
    read = read_published(service.file)
    assert isinstance(read, PublishedRidge)
    other = Ridge(0.01).fit(service.rows["features"], service.rows["labels"])
    assert np.allclose(read.coef[0], other.coef_, rtol=1e-2)
    assert np.allclose(read.intercept, other.intercept_, rtol=1e-3)
    words = ("--alpha", "0.01", "--no-intercept")
    found = register("ridge-regressor", path, *COLUMNS, *words)
    assert found.exit_code == 0, found.output
    assert service.manifest["sums"]["intercept"] is False


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "negative weight": ({"w": [-1.0] * 150}, ("--sample-weight", "w"), "w: is negative"),
    "missing weight": ({"w": [None] + [1.0] * 149}, ("--sample-weight", "w"), "w: "),
    "large weight": ({"w": [300.0] * 150}, ("--sample-weight", "w"), "w: is above 256"),
    "small weight": ({"w": [0.001] * 150}, ("--sample-weight", "w"), "w: would be 0"),
    "weight is a feature": (
        {},
        ("--sample-weight", "f0", "--features", "f0"),
        "f0: is the weight and cannot be a feature too",
    ),
    "missing feature": ({"f5": [None] + [1.0] * 149}, (), "f5: has no value"),
    "large feature": ({"f5": [1e5] * 150}, (), "f5: exceeds 32768"),
    "option of another": ({}, ("--alpha", "1"), "no such option"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_names_column_or_option(
    name: str, tmp_path: Path, service: Service
) -> None:
    more, words, cause = REFUSED[name]
    path = table(tmp_path, **more)
    found = register("gaussian-nb", path, *COLUMNS, *words)
    assert found.exit_code != 0
    assert cause in found.output + str(found.exception)
    assert not service.manifest


def test_a_negative_count_is_named(tmp_path: Path, service: Service) -> None:
    found = register("multinomial-nb", table(tmp_path, f5=[-1] * 150), *COLUMNS)
    assert "f5: is negative" in found.output + str(found.exception)
    assert not service.manifest


def test_the_limits_are_those_of_the_sums() -> None:
    assert LARGEST_CODE == MAX_CODE
    assert STEPS == 1 << WEIGHT_BITS


def test_a_machine_without_the_extra_is_told_what_to_install(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one.startswith("lethe.estimators")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name != "numba" or None)
    found = register("gaussian-nb", table(tmp_path), *COLUMNS)
    assert isinstance(found.exception, LetheError)  # which `lethe` prints, without a traceback
    assert "the package numba, which is not installed: run in a clone" in str(found.exception)
    assert not service.manifest


def test_what_holds_up_a_fit_is_said_once(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled = {"state": "registered", "failure": "numba is not installed"}
    states = iter([stalled, stalled, {"state": "registered", "failure": None}])
    ready = {"state": "ready", "current_version": 1}
    monkeypatch.setattr(service, "model", lambda _: next(states, ready))
    found = register("gaussian-nb", table(tmp_path), *COLUMNS)
    assert found.exit_code == 0, found.output
    assert found.stderr.count("not fitted yet: numba is not installed\n") == 1
    begin, end = [line for line in found.stderr.splitlines() if " after " in line]
    assert begin == "  m: fitting after 0.0 s"
    assert end.startswith("  m: ready after ")


@pytest.mark.parametrize("intercept", ["--intercept", "--no-intercept"])
def test_a_penalty_too_small_is_refused_before_rows_are_sent(
    intercept: str, tmp_path: Path, service: Service
) -> None:
    path = table(tmp_path, f4=np.arange(150) * 1e7)
    asked = partial(
        register, "ridge-classifier", path, *COLUMNS, "--exponent", "0", intercept, "--alpha"
    )
    refused = asked("1e-5")
    assert refused.exit_code == 1, refused.output
    assert not service.rows
    advised = re.search(
        r"relative to feature 4 .*: choose at least ([0-9.e+]+),", str(refused.exception)
    )
    assert advised, refused.exception
    accepted = asked(advised[1])
    assert accepted.exit_code == 0, accepted.output
    assert service.rows
