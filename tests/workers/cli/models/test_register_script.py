"""`lethe model register script`, and what is downloaded of it."""

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load, save, save_file

from app.schemas.families.scripts import NewScript
from tests.workers.cli.models.registering import FittingService
from tests.workers.jobs.families.test_held_out_families import PREDICT
from tests.workers.training.programs.small import script
from workers.cli.models import command as model
from workers.families.script.family import FAMILY
from workers.training.programs import run
from workers.training.recipes.fit import FitRows
from workers.training.recipes.process import Limits


class Service(FittingService):
    """Accepts a registration as the API does, and answers with a fit made here."""

    def __init__(self) -> None:
        super().__init__()
        self.config: dict[str, Any] = {}

    def fitted(self, manifest: dict[str, Any], data: bytes, rows: dict[str, Any]) -> bytes:
        self.config = NewScript.model_validate(manifest).pinned()["config"]
        labels = rows["labels"].astype(float)
        weights = np.linalg.lstsq(rows["features"], labels, rcond=None)[0]
        return save({"weights": weights, "seed": np.array([7])})

    def model(self, ref: str) -> dict[str, Any]:
        return {**super().model(ref), "config": self.config, "classes": []}


def register(folder: Path, description: Any = None, *words: object) -> Result:
    document = script()
    for name, text in document.pop("files").items():
        (folder / name).write_text(text)
    (folder / "script.json").write_text(json.dumps(description or document))
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 3))
    labels = (features[:, 0] > 0).astype(np.int64)
    np.savez(folder / "rows.npz", features=features, labels=labels, clients=np.arange(60) % 6)
    arguments = [folder, folder / "rows.npz", "--url", "http://x", "--ref", "m"]
    return CliRunner().invoke(
        model.model, ["register", "script", *map(str, [*arguments, *words])]
    )


def test_the_program_travels_and_given_weights_are_compared(
    tmp_path: Path, service: Service
) -> None:
    found = register(tmp_path)
    assert found.exit_code == 0, found.output
    assert "erasures will claim exact-retrained" in found.output
    assert service.config["script"]["files"] == script()["files"]
    theirs = tmp_path / "theirs.safetensors"
    theirs.write_bytes(service.file)
    same = register(tmp_path, None, "--weights", theirs)
    assert "byte for byte, those of the program's run" in same.output
    assert len(service.config["script"]["weights"]) == 64
    save_file({"weights": np.ones(3), "seed": np.array([7])}, theirs)
    other = register(tmp_path, None, "--weights", theirs)
    assert "differ from the program's run by" in other.output
    save_file({"weights": np.ones(4)}, theirs)
    assert (
        "it is not the program that made them"
        in register(tmp_path, None, "--weights", theirs).output
    )
    theirs.write_bytes(b"no model")
    refused = register(tmp_path, None, "--weights", theirs)
    assert "--weights: the program's file is not a safetensors file" in str(refused.exception)


def test_a_run_and_given_weights_are_measured_on_held_out_rows(
    tmp_path: Path, service: Service
) -> None:
    """By the program's own `predict`, here; the oracle is numpy on the same rows."""
    (tmp_path / "predict.py").write_text(PREDICT)
    document = {name: value for name, value in script().items() if name != "files"}
    named = {**document, "predict": "predict.py"}
    plain = register(tmp_path)
    assert "not measured: the script names no file to predict by" in plain.output
    theirs, given = tmp_path / "theirs.safetensors", np.array([-1.0, 0.5, 0.5])
    save_file({"weights": given, "seed": np.array([7])}, theirs)
    found = register(tmp_path, named, "--send-holdout", "--weights", theirs)
    assert found.exit_code == 0, found.output
    features, labels = (service.rows[f"held_out_{one}"] for one in ("features", "labels"))
    mine, other = (
        (features @ weights > 0.5).astype(np.int64)
        for weights in (load(service.file)["weights"], given)
    )
    share, rest = (f"{float(np.mean(one == labels)):.3f}" for one in (mine, other))
    assert f"the program's run: accuracy on 6 held-out rows: {share}" in found.output
    assert f"the given weights: accuracy on 6 held-out rows: {rest}" in found.output
    assert f"their answers differ on {(mine != other).sum()} rows" in found.output
    assert (mine != other).any()
    (tmp_path / "predict.py").write_text("raise SystemExit(3)")
    broken = register(tmp_path, named)
    assert broken.exit_code == 0
    assert "not measured on held-out rows: predict.py ended with status 3" in broken.output


def test_weights_and_categories_of_a_table(tmp_path: Path, service: Service) -> None:
    path, document = tmp_path / "rows.parquet", script()
    for name, text in document.pop("files").items():
        (tmp_path / name).write_text(text)
    file = tmp_path / "script.json"
    table = {
        "y": ["no", "yes"] * 20,
        "x": np.arange(40.0),
        "plan": ["small", "large", "large", "small"] * 10,
        "w": np.arange(1.0, 41.0),
    }
    pq.write_table(pa.table(table), path)
    words = [*("register", "script", tmp_path, path, "--url", "http://x", "--ref", "m")]
    words += [*("--label", "y", "--sample-weight", "w")]

    def run_with(categories: Any) -> Result:
        file.write_text(json.dumps({**document, "categories": categories}))
        return CliRunner().invoke(model.model, [str(word) for word in words])

    for wrong, said in (
        ({"plan": ["small"]}, "plan: 20 of 40 values are not among its categories"),
        ({"size": ["small"]}, "categories: size is not among the features"),
        ({"plan": []}, "categories.plan: List should have at least 1 item"),
    ):
        refused = run_with(wrong)
        assert refused.exit_code != 0
        assert said in f"{refused.output} {refused.exception}"
        assert service.config == {}
    found = run_with({"plan": ["small", "large"]})
    assert found.exit_code == 0, found.output
    assert service.config["features"] == ["x", "plan"]
    assert service.config["categories"] == {"plan": ["small", "large"]}
    assert service.config["weighted"] is True
    assert service.rows["weights"].tolist() == (service.rows["features"][:, 0] + 1).tolist()


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ({"entry": "train.py"}, '"entry" and "lock", names of files'),
        ({"entry": "none.py", "lock": "lock.txt"}, "none.py: cannot be read"),
        ({"entry": "../rows.py", "lock": "lock.txt"}, "in the folder of the description only"),
        ({"entry": "train.py", "lock": "train.py"}, "train.py, line 1: must be NAME==VERSION"),
        ({"entry": "train.py", "lock": "lock.txt", "output": "pickle"}, "output"),
        ({"entry": "train.py", "lock": "lock.txt", "speed": 1}, "speed"),
        ({"entry": "train.py", "lock": "lock.txt", "files": ["rows.npz"]}, "must be a text"),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_sent(
    tmp_path: Path, service: Service, description: Any, said: str
) -> None:
    found = register(tmp_path, description)
    assert found.exit_code != 0
    text = f"{found.output} {found.exception}"
    assert said in text, text
    assert service.config == {}


NEEDED = ("ml_dtypes", "onnx", "protobuf", "typing_extensions")
VERSIONS = {name: metadata.version(name) for name in NEEDED}
ONNX = """\
import sys

import numpy as np
import onnx
import pyarrow.ipc
from onnx import TensorProto, helper, numpy_helper

rows, model, seed = sys.argv[1:]
table = pyarrow.ipc.open_file(rows).read_all()
x = np.stack([table[f"f{i}"].to_numpy() for i in range(3)], axis=1)
w = np.linalg.lstsq(x, table["label"].to_numpy().astype(float), rcond=None)[0][:, None]
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["y"])],
    "line",
    [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [None, 3])],
    [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [None, 1])],
    [numpy_helper.from_array(w, "w")],
)
onnx.save(
    helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)]), model
)
"""


@pytest.mark.full
def test_a_program_that_writes_onnx_predicts_after_download() -> None:
    document = script(ONNX, output="onnx", predict=None, threads=1, tolerance=None)
    lock = document["files"]["lock.txt"] + "".join(
        f"{name}=={version}\n" for name, version in VERSIONS.items()
    )
    document["files"] = {**document["files"], "lock.txt": lock}
    rng = np.random.default_rng(2)
    features = rng.normal(size=(30, 3))
    rows = FitRows(features, (features[:, 0] > 0).astype(np.int64))
    config = {"columns": 3, "classes": 2, "script": document}
    file = run.execute(config, rows, Limits(60, 4 << 30, 1 << 20))
    exported = FAMILY.export(file, "onnx", [], {})
    assert exported == file
    (found,) = onnxruntime.InferenceSession(exported).run(None, {"x": features})
    oracle = features @ np.linalg.lstsq(features, rows.labels.astype(float), rcond=None)[0]
    assert np.allclose(found[:, 0], oracle)


def test_only_a_program_that_can_be_asked_takes_held_out_rows(
    tmp_path: Path, service: Service
) -> None:
    refused = register(tmp_path, None, "--send-holdout")
    assert refused.exit_code != 0
    assert 'safetensors, by which only its own code predicts: name a program "predict"' in (
        " ".join(refused.output.split())
    )
    assert service.config == {}
    (tmp_path / "predict.py").write_text("pass")
    document = {name: value for name, value in script().items() if name != "files"}
    taken = register(tmp_path, {**document, "predict": "predict.py"}, "--send-holdout")
    assert taken.exit_code == 0, taken.output
    assert service.config["script"]["files"]["predict.py"] == "pass"
    assert service.rows["held_out_features"].shape == (6, 3)
    missing = register(tmp_path, {**document, "predict": "none.py"}, "--send-holdout")
    assert "none.py: cannot be read" in f"{missing.output} {missing.exception}"
