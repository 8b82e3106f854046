"""Held-out rows of every further family: measured at each version, and judged again.

The oracle computes each figure from the file that the service publishes, with numpy, FAISS,
scikit-learn or onnxruntime called directly.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import faiss
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load
from sklearn.metrics import accuracy_score, r2_score
from sqlmodel import select

from app.service.models import held_out
from models import Model
from tests import small_network
from tests.installation import Installation
from tests.remote import Remote
from tests.small import pack
from tests.small import rows as small_rows
from tests.workers.jobs.desk.test_cases import opened, outcomes
from tests.workers.jobs.desk.test_people import EVE, write
from tests.workers.jobs.families import test_vectors_family as indexes
from tests.workers.jobs.families.test_shards_family import FOREST
from tests.workers.jobs.families.uploaded import rows as table
from tests.workers.jobs.lineage.test_held_out import (
    HELD,
    artifact,
    evaluated,
    problems,
    statement,
    versions,
)
from tests.workers.secure_sum.client.federation import Masked
from tests.workers.training.programs.small import script
from workers.artifacts import decode_head
from workers.families.shards.family import READER
from workers.jobs import held_out as figures
from workers.training.recipes import process
from workers.training.recipes.files import decode
from workers.training.recipes.fit import fit as fit_here
from workers.training.shards import container
from workers.training.shards.predict import ShardedModel

library: Any = faiss
COLUMNS = 4
WEIGHTS = np.random.default_rng(3).normal(size=(COLUMNS, 3)).astype(np.float32)
PREDICT = """\
import sys

import numpy as np
import pyarrow.ipc
from safetensors.numpy import load, save_file

rows, answer, seed = sys.argv[1:]
table = pyarrow.ipc.open_file(rows).read_all()
weights = load(table.schema.metadata[b"model"])["weights"]
features = np.stack([column.to_numpy() for column in table.columns], axis=1)
save_file({"predictions": (features @ weights > 0.5).astype(np.int64)}, answer)
"""


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: held-out rows use the same calls as all artifacts."""
    return sqlite_url


@pytest.fixture(autouse=True)
def fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit recipes in this process: a separate one takes seconds to start."""

    def fit_all(recipe: Any, tables: Any, threads: int, limits: Any) -> list[bytes]:
        return [fit_here(recipe, one, threads) for one in tables]

    honest = process.predict

    def predict(file: bytes, features: Any, limits: Any, reader: str, **more: Any) -> Any:
        if reader == READER:
            return ShardedModel.from_bytes(file).predict(features)
        return honest(file, features, limits, reader, **more)

    monkeypatch.setattr(process, "fit_all", fit_all)
    monkeypatch.setattr(process, "predict", predict)


def onnx_model() -> bytes:
    """Return a model of scores: rows times WEIGHTS."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["rows", "w"], ["scores"])],
        "scores",
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, [None, COLUMNS])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, 3])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


def writes(file: bytes) -> dict[str, Any]:
    """Return a program that writes a file, whatever its rows are."""
    text = f"""\
import base64, sys

open(sys.argv[2], "wb").write(base64.b64decode("{base64.b64encode(file).decode()}"))
"""
    return script(text, output="onnx")


def predicting() -> dict[str, Any]:
    """Return a program that writes safetensors, with one that predicts from them."""
    document = script()
    files = {**document["files"], "predict.py": PREDICT}
    return {**document, "files": files, "predict": "predict.py"}


TABLE = {"ref": "small", "classes": ["no", "maybe", "yes"], "columns": COLUMNS}


def vectors(arrays: dict[str, Any], file: bytes) -> tuple[str, dict[str, str]]:
    """Return recall and self-retrieval, by numpy and FAISS's own search of the export."""
    from workers.training.vectors import faiss_file, files

    index = files.decode(file)
    made = library.deserialize_index(np.frombuffer(faiss_file.to_bytes(index), np.uint8))
    queries = arrays["held_out_features"]
    _, found = made.search(queries, 10)
    apart = np.square(queries[:, None].astype(float) - index.vectors[None]).sum(axis=2)
    nearest = np.argsort(apart, axis=1)[:, :10]
    right = sum(len(set(a) & set(b)) for a, b in zip(found, nearest, strict=True))
    _, own = made.search(index.vectors, 1)
    itself = float(np.mean(own[:, 0] == np.arange(len(own))))
    return f"{right / nearest.size:.4f}", {"self-retrieval": f"{itself:.4f}"}


def apart(arrays: dict[str, Any], file: bytes) -> tuple[str, dict[str, str]]:
    """Return the accuracy of each shard's own estimator."""
    found = []
    for one in container.decode(file)[1]:
        fitted = decode(one)
        assert fitted.estimator is not None
        places = fitted.estimator.predict(arrays["held_out_features"])
        named = np.array(fitted.classes)[places]
        found.append(float(accuracy_score(arrays["held_out_labels"], named)))
    parts = {f"shard {place}": f"{value:.4f}" for place, value in enumerate(found)}
    return f"{np.mean(found):.4f}", parts


def by_onnx(arrays: dict[str, Any], file: bytes) -> tuple[str, None]:
    """Return the accuracy of onnxruntime's largest score."""
    session = onnxruntime.InferenceSession(file)
    rows = arrays["held_out_features"].astype(np.float32)
    (scores,) = session.run(None, {"rows": rows})
    return f"{accuracy_score(arrays['held_out_labels'], scores.argmax(axis=1)):.4f}", None


def programs_apart(arrays: dict[str, Any], file: bytes) -> tuple[str, dict[str, str]]:
    """Return the accuracy of each shard's ONNX model, all of which are the same here."""
    files = container.decode(file)[1]
    value, _ = by_onnx(arrays, files[0])
    return value, {f"shard {place}": value for place in range(len(files))}


def by_program(arrays: dict[str, Any], file: bytes) -> tuple[str, None]:
    """Return the accuracy of what PREDICT computes, with numpy here."""
    found = (arrays["held_out_features"] @ load(file)["weights"] > 0.5).astype(int)
    return f"{accuracy_score(arrays['held_out_labels'], found):.4f}", None


def logistic(arrays: dict[str, Any], file: bytes) -> tuple[str, None]:
    """Return the accuracy of a logistic head, with numpy."""
    weights = load(file)
    (matrix,) = (one for one in weights.values() if one.ndim == 2)
    (bias,) = (one for one in weights.values() if one.ndim == 1)
    scores = arrays["held_out_features"] @ matrix.T + bias
    return f"{accuracy_score(arrays['held_out_labels'], scores.argmax(axis=1)):.4f}", None


Oracle = Callable[[dict[str, Any], bytes], tuple[str, dict[str, str] | None]]
FAMILIES: dict[str, tuple[dict[str, Any], str, Oracle]] = {
    "vectors": (
        {"family": "vectors", "ref": "small", "columns": 8, "vectors": indexes.KINDS["hnsw"]},
        "recall@10",
        vectors,
    ),
    "shards apart": (
        {
            **TABLE,
            "family": "shards",
            "recipe": FOREST,
            "shards": {"count": 2, "aggregate": "apart"},
        },
        "accuracy",
        apart,
    ),
    "script in ONNX": (
        {**TABLE, "family": "script", "script": writes(onnx_model())},
        "accuracy",
        by_onnx,
    ),
    "script that predicts": (
        {**TABLE, "family": "script", "script": predicting()},
        "accuracy",
        by_program,
    ),
    "script in shards": (
        {
            **TABLE,
            "family": "shards",
            "script": writes(onnx_model()),
            "shards": {"count": 2, "aggregate": "apart"},
        },
        "accuracy",
        programs_apart,
    ),
    "network": (
        {**small_network.manifest(), "ref": "small", "method": "retrain", "settings": {}},
        "accuracy",
        logistic,
    ),
}


def arrays_of(family: str) -> dict[str, Any]:
    """Return a registration's arrays, with HELD held-out rows; the first is Eve's."""
    if family == "vectors":
        arrays = indexes.rows()
        sent = evaluated(arrays)
        del sent["held_out_labels"]
        sent["held_out_features"] = sent["held_out_features"].astype(np.float32)
        return sent
    if family == "network":
        arrays = small_network.rows()
        sent = evaluated({**arrays, "features": arrays["inputs"]})
        del sent["features"]
        sent["held_out_features"] = sent["held_out_features"].astype(np.float32)
        return sent
    return evaluated(table())


def send(installation: Installation, family: str, arrays: dict[str, Any]) -> Any:
    """Register a model of a family."""
    assert installation.caller.register_key().status_code in (200, 201)
    return installation.caller.operator(
        "POST",
        "/v1/models",
        files={"data": ("rows.npz", pack(arrays))},
        data={"manifest": json.dumps(FAMILIES[family][0])},
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_measured_and_judged(installation: Installation, family: str) -> None:
    arrays = arrays_of(family)
    answer = send(installation, family, arrays)
    assert answer.status_code == 201, answer.text
    installation.drain()
    _, metric, oracle = FAMILIES[family]
    (first,) = versions(installation)
    figure = first["held_out"]
    assert (figure["withheld"], figure["metric"]) == (None, metric)
    assert (figure["value"], figure["parts"]) == oracle(arrays, artifact(installation))
    assert figure["rows"] == HELD
    if family == "vectors":  # otherwise the oracle could not distinguish it from a constant
        assert figure["value"] != "1.0000"
    # Eve is only in held-out rows: her case removes them from later figures.
    assert outcomes(opened(installation, EVE).json()) == {"small": "held out only"}
    record = str(arrays["records"][0])
    accepted = installation.caller.erase(
        {"level": "sample", "records": [record]}, fields={"model": "small"}
    )
    assert accepted.status_code == 202, accepted.text
    installation.drain()
    after = versions(installation)[1]["held_out"]
    kept = {name: one[1:] for name, one in arrays.items() if name.startswith("held_out_")}
    assert (after["value"], after["parts"]) == oracle(kept, artifact(installation))
    assert (after["rows"], after["set"] != figure["set"]) == (HELD - 1, True)
    parameters = statement(installation, accepted.json()["id"])["method"]["parameters"]
    words = f"{metric} {after['value']} on {HELD - 1} rows"
    assert parameters["heldOutAfter"].startswith(words)
    assert all(value in parameters["heldOutAfter"] for value in (after["parts"] or {}).values())
    assert parameters["heldOutJudged"] == f"{parameters['heldOutAfter']}, as published"
    installation.check()


def test_a_wrong_figure_is_contradicted_and_an_erased_row_measures_nothing(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = arrays_of("vectors")
    assert send(installation, "vectors", arrays).status_code == 201
    installation.drain()
    honest = figures.measure

    def better(*arguments: Any) -> figures.VersionFigure:
        found = honest(*arguments)
        assert found.figure is not None
        return replace(found, figure={**found.figure, "parts": {"self-retrieval": "0.1234"}})

    def erase(place: int) -> str:
        scope = {"level": "sample", "records": [str(arrays["records"][place])]}
        accepted = installation.caller.erase(scope, fields={"model": "small"})
        assert accepted.status_code == 202, accepted.text
        installation.drain()
        return str(accepted.json()["id"])

    with monkeypatch.context() as patch:
        patch.setattr(figures, "measure", better)
        request = erase(0)
    judged = statement(installation, request)["method"]["parameters"]["heldOutJudged"]
    assert "(self-retrieval: 1.0000), but published was recall@10 " in judged
    assert judged.endswith("(self-retrieval: 0.1234)")
    with installation.services.reading() as session:
        model = session.exec(select(Model)).one()
        with_eve = held_out.stored(installation.services, session, model)
    assert outcomes(opened(installation, EVE).json()) == {"small": "held out only"}
    with monkeypatch.context() as patch:
        patch.setattr(held_out, "stored", lambda *_: with_eve)
        request = erase(1)
    shown = installation.caller.http.get(f"/v1/requests/{request}").json()
    assert shown["state"] in ("executing", "needs-decision")
    assert len(versions(installation)) == 2


def test_parts_numbers_and_masks_have_the_figures_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    labels = rng.normal(size=30)
    answers = np.stack([labels + rng.normal(size=30), np.full(30, np.nan), labels])
    found = figures.scored(answers, labels, classifies=False)
    first = r2_score(labels, answers[0])
    assert found == {
        "metric": "R2",
        "value": f"{(first + 1) / 2:.4f}",  # of the two with rows
        "parts": {"shard 0": f"{first:.4f}", "shard 1": "no rows", "shard 2": "1.0000"},
    }
    masks, guessed = rng.integers(3, size=(2, 25, 4, 4))
    value = f"{accuracy_score(masks.ravel(), guessed.ravel()):.4f}"
    expected = {"metric": "pixel accuracy", "value": value}
    assert figures.scored(guessed, masks, classifies=True) == expected
    assert "withheld" in figures.scored(answers, np.ones(30), classifies=False)
    with pytest.raises(ValueError, match="not of the labels' shape"):
        figures.scored(answers[:, :29], labels, classifies=False)


class Measured(Masked):
    """A masked model that was registered with held-out rows."""

    held_out: dict[str, Any]

    def send(self, held_out: dict[str, Any]) -> Any:
        files: dict[str, Any] = {"manifest": (None, json.dumps(self.manifest))}
        files["data"] = ("held-out.npz", pack(held_out))
        return self.installation.caller.operator("POST", "/v1/models", files=files)

    def register(self) -> None:
        self.installation.caller.register_key()
        arrays = evaluated(small_rows())
        self.held_out = {k: v for k, v in arrays.items() if k.startswith("held_out_")}
        assert self.send(self.held_out).status_code == 201
        assert self.send(self.held_out).status_code == 201  # as after a lost response
        other = {**self.held_out, "held_out_labels": self.held_out["held_out_labels"][::-1]}
        assert self.send(other).status_code == 409


def test_a_masked_model_is_measured_on_the_operators_rows(installation: Installation) -> None:
    """The service sees no rows of clients: it has only the held-out ones."""
    learned = Measured(installation)
    learned.round("c0", "c1", "c2", "c3")
    (first,) = versions(installation)
    value = by_head(learned.held_out, artifact(installation))
    assert (first["held_out"]["metric"], first["held_out"]["value"]) == ("accuracy", value)
    assert outcomes(opened(installation, EVE).json()) == {"small": "held out only"}
    request = installation.caller.erase_records(learned.owned("c1")[0]).json()["id"]
    installation.drain()
    learned.round("c0", "c1", "c2", "c3")
    after = versions(installation)[1]["held_out"]
    kept = {name: one[1:] for name, one in learned.held_out.items()}
    assert (after["rows"], after["value"]) == (
        HELD - 1,
        by_head(kept, artifact(installation)),
    )
    parameters = statement(installation, request)["method"]["parameters"]
    assert parameters["heldOutJudged"] == f"accuracy {after['value']} on 23 rows, as published"
    installation.check()


def test_statistics_of_clients_are_measured_on_the_operators_rows(
    installation: Installation,
) -> None:
    remote = Remote(installation)
    installation.caller.register_key()
    arrays = evaluated(small_rows())
    held = {name: one for name, one in arrays.items() if name.startswith("held_out_")}
    answer = installation.caller.operator(
        "POST",
        "/v1/models",
        files={
            "manifest": (None, json.dumps(remote.manifest)),
            "data": ("held-out.npz", pack(held)),
        },
    )
    assert answer.status_code == 201, answer.text
    sent = remote.contribute("c0", remote.message(remote.owned("c0")))
    assert sent.status_code == 202, sent.text
    installation.drain()
    (first,) = versions(installation)
    assert first["held_out"]["value"] == by_head(held, artifact(installation))
    installation.check()


def test_a_round_waits_while_held_out_rows_are_not_those_of_the_log(
    installation: Installation,
) -> None:
    learned = Measured(installation)
    write(
        installation, "UPDATE artifacts SET digest = hex(zeroblob(32)) WHERE kind = 'held-out'"
    )
    learned.round("c0", "c1", "c2", "c3")
    assert versions(installation) == []
    assert "held-out" in problems(installation)


def test_a_member_cannot_teach_a_held_out_row(installation: Installation) -> None:
    learned = Measured(installation)
    learned.rows.records[0] = "held1"  # of c0, as the operator's
    failed = learned.round("c0", "c1", "c2", "c3")
    shown = learned.view(failed)
    assert shown["state"] == "failed"
    assert "held-out" in shown["reason"]
    assert versions(installation) == []


def by_head(arrays: dict[str, Any], file: bytes) -> str:
    """Return scikit-learn's accuracy of a head on held-out rows."""
    head, _ = decode_head(file)
    found = (arrays["held_out_features"] @ head).argmax(axis=1)
    return f"{accuracy_score(arrays['held_out_labels'], found):.4f}"
