"""What manifests say of the columns of their rows."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.schemas.families.manifests import MANIFESTS
from tests.workers.training.programs.small import script

RECIPE = {"estimator": "sklearn.naive_bayes.GaussianNB"}
OWN: dict[str, dict[str, Any]] = {
    "recipe": {"recipe": RECIPE},
    "shards": {"recipe": RECIPE, "shards": {"count": 2}},
    "script": {"script": script()},
}
COLUMNS = {
    "features": ["age", "plan"],
    "categories": {"plan": ["small", "large"]},
    "weighted": True,
}


def manifest(family: str, **changes: Any) -> Any:
    members = {"family": family, "ref": "m", "classes": ["a", "b"], "columns": 2}
    return MANIFESTS[family].model_validate({**members, **OWN[family], **changes})


@pytest.mark.parametrize("family", OWN)
def test_columns_are_pinned_and_what_is_not_used_is_absent(family: str) -> None:
    config = manifest(family, **COLUMNS).pinned()["config"]
    assert {name: config[name] for name in COLUMNS} == COLUMNS
    plain = manifest(family).pinned()["config"]
    assert plain["columns"] == 2
    assert COLUMNS.keys().isdisjoint(plain)


@pytest.mark.parametrize("family", OWN)
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"features": ["age"]}, "name every column, or none"),
        ({"features": ["age", "age"]}, "features: name each once"),
        ({"categories": {"plan": ["small"]}}, "plan is not among the features"),
        (
            {"features": ["age", "plan"], "categories": {"plan": ["a", "a"]}},
            "plan names a value twice",
        ),
        ({"features": ["age", "plan"], "categories": {"plan": []}}, "at least 1 item"),
        ({"columns": 0}, "columns"),
    ],
)
def test_columns_that_contradict_each_other(family: str, changes: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        manifest(family, **changes)


NAMED: dict[str, dict[str, Any]] = {
    "sums": {"columns": 2, "sums": {"estimator": "gaussian-nb"}},
    "forest": {"edges": [[0.0], [0.0]]},
    "ridge": {
        "exponents": [0, 0],
        "penalty": 1.0,
        "extractor": {"id": "identity", "digest": "0" * 64, "parameters": {}},
    },
}


@pytest.mark.parametrize("family", NAMED)
def test_other_families_pin_the_names_of_features_too(family: str) -> None:
    plain = {"family": family, "ref": "m", "classes": ["a", "b"], **NAMED[family]}
    read = MANIFESTS[family].model_validate
    assert "features" not in read(plain).pinned()["config"]
    assert read({**plain, "features": ["x", "y"]}).pinned()["config"]["features"] == ["x", "y"]
    with pytest.raises(ValidationError, match="features: name each once"):
        read({**plain, "features": ["x", "x"]})
    if family != "ridge":  # whose names are those of its extractor's inputs
        with pytest.raises(ValidationError, match="name every column, or none"):
            read({**plain, "features": ["x"]})
