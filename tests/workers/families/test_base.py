"""A family is found by its name, and jobs know none."""

import subprocess
import sys
import tomllib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from models import Model
from workers.families import base
from workers.families.base import UnknownFamilyError
from workers.families.forest.family import ForestFamily
from workers.families.masked.family import MaskedFamily
from workers.families.network.family import NetworkFamily, NoTorchError
from workers.families.recipe.family import RecipeFamily
from workers.families.ridge.family import RidgeFamily
from workers.families.script.family import ScriptFamily
from workers.families.shards.family import ShardsFamily
from workers.families.sums.family import SumsFamily
from workers.families.vectors.family import VectorsFamily

ROOT = Path(__file__).parents[3]
FOLDERS = {path.parent.name for path in (ROOT / "workers/families").glob("*/family.py")}


def model(**config: Any) -> Model:
    return Model(
        ref="m",
        method="any",
        classes=["a"],
        config=config,
        extractor={"digest": "0" * 64},
        tombstone_key=b"",
    )


def of(**config: Any) -> base.Family:
    return base.of(model(**config))


def test_a_model_has_the_family_that_it_was_registered_with() -> None:
    assert type(of(data="rows")) is RidgeFamily
    assert type(of(data="statistics", family="ridge")) is RidgeFamily
    assert type(of(data="masked")) is MaskedFamily
    assert type(of(data="rows", family="network")) is NetworkFamily
    assert type(of(data="rows", family="recipe")) is RecipeFamily
    assert type(of(data="rows", family="forest")) is ForestFamily
    assert type(of(data="rows", family="script")) is ScriptFamily
    assert type(of(data="rows", family="shards")) is ShardsFamily
    assert type(of(data="rows", family="sums")) is SumsFamily
    assert type(of(data="rows", family="vectors")) is VectorsFamily
    every = {RidgeFamily, MaskedFamily, NetworkFamily, RecipeFamily, ForestFamily}
    every |= {ScriptFamily, ShardsFamily, SumsFamily, VectorsFamily}
    assert {type(kind) for kind in base.every()} == every


def test_a_family_that_this_worker_lacks_leaves_the_job_to_another() -> None:
    with pytest.raises(UnknownFamilyError, match="family orchard: update") as raised:
        of(data="rows", family="orchard")
    assert raised.value.status >= 500


SWEEPING = """
import sys

OPTIONAL = {"faiss", "lightgbm", "mlflow", "numba", "onnx", "pyarrow", "sklearn", "skops", "torch"}
OPTIONAL |= {"onnxruntime", "pandas", "skl2onnx", "xgboost"}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OPTIONAL:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from workers.families import base
print(len(list(base.every())))
"""


def test_a_worker_of_any_extras_sweeps_for_every_family() -> None:
    # Each sweep calls every family: one that needed its library there would stop them all.
    found = subprocess.run(
        [sys.executable, "-c", SWEEPING], capture_output=True, text=True, cwd=ROOT
    )
    assert found.stdout == f"{len(base.FAMILIES)}\n", found.stderr


def test_each_folder_is_one_line_of_the_registry_and_forbidden_elsewhere() -> None:
    named = {path.split(".")[2] for path in base.FAMILIES.values()}
    assert named == FOLDERS
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    name = "a family is known by its registry alone"
    (rule,) = [one for one in contracts["contracts"] if one["name"] == name]
    assert rule["forbidden_modules"] == [f"workers.families.{name}" for name in sorted(FOLDERS)]
    rooms = {one.stem for one in (ROOT / "workers").iterdir() if (one / "__init__.py").exists()}
    ruled = {one.split(".")[1] for one in rule["source_modules"]}
    assert rooms - ruled == set(), "a new room may not know a family either"


def test_a_network_is_certified_without_torch_and_computed_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = of(data="rows", family="network")
    monkeypatch.setattr(base, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "workers.families.network.update", None)
    with pytest.raises(NoTorchError, match="pip install"):
        kind.check_here()
    with pytest.raises(NoTorchError, match="pip install"):
        kind.read(model(), BytesIO())
    assert set(kind.registered(model(policy={}))) == {"policy"}
