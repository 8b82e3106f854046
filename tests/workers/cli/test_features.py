"""`lethe features` from a raw file to the manifest of a registration."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from lethe.errors import LetheError
from tests.workers.data.extractors.test_torch_module import Mlp, export
from workers.cli import features
from workers.cli.models import command as model
from workers.data.extractors import registry
from workers.data.extractors.random_relu import RandomRelu

N = 20


def run(*arguments: object) -> Result:
    return CliRunner().invoke(features.features, [str(word) for word in arguments])


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "raw.npz"
    np.savez(
        path,
        inputs=np.random.default_rng(0).normal(size=(N, 4)).astype(np.float32),
        labels=np.arange(N) % 2,
        clients=np.array(["a", "b"] * (N // 2)),
        records=np.arange(N),
        subjects=np.arange(N),
        is_test=np.arange(N) < 5,
    )
    return path


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    export(Mlp().eval(), tmp_path / "m.pt2")
    return tmp_path / "m.pt2"


def test_features_keep_what_lay_beside_the_inputs(
    raw: Path, archive: Path, tmp_path: Path
) -> None:
    out = tmp_path / "features.npz"
    result = run(
        "extract", "--extractor", "torch-module", "--path", archive, "--data", raw, "--out", out
    )
    assert result.exit_code == 0, result.output
    extractor = registry.open_extractor("torch-module", {}, path=archive)
    with np.load(raw) as before, np.load(out) as after:
        assert set(after.files) == (set(before.files) - {"inputs"}) | {"features", "extractor"}
        assert np.array_equal(after["features"], extractor.extract(before["inputs"]))
        for name in ("labels", "clients", "records", "subjects", "is_test"):
            assert np.array_equal(after[name], before[name])
        assert json.loads(str(after["extractor"]))["digest"] == extractor.digest
    assert f"digest    {extractor.digest}\n" in result.output
    digest = run("digest", "--extractor", "torch-module", "--path", archive)
    assert digest.output == f"{extractor.digest}\n"


def test_parameters_that_follow_may_be_left_out(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "features.npz"
    words = ["--extractor", "random-relu", "--parameter", "outputs=6", "--parameter", "seed=3"]
    assert run("extract", *words, "--data", raw, "--out", out).exit_code == 0
    with np.load(raw) as before, np.load(out) as after:
        assert np.array_equal(after["features"], RandomRelu(4, 6, 3).extract(before["inputs"]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--extractor", "torch-module"], "give the path"),
        (["--extractor", "torch-module", "--path", "absent.pt2"], "missing or unreadable"),
        (["--extractor", "random-relu"], "missing"),
        (["--extractor", "identity", "--digest", "0" * 64], "differs from the pinned one"),
        (["--extractor", "identity", "--parameter", "dimension=5"], "5 columns"),
    ],
)
def test_refusals_name_their_cause_and_write_nothing(
    raw: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    out = tmp_path / "features.npz"
    result = run("extract", *words, "--data", raw, "--out", out)
    assert isinstance(result.exception, LetheError)
    assert message in result.exception.detail
    assert not out.exists()


def test_texts_are_not_read_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "texts.npz"
    np.savez(path, texts=np.array(["a", "b"]))
    words = ["--extractor", "identity", "--parameter", "dimension=1"]
    result = run("extract", *words, "--data", path, "--out", tmp_path / "out.npz")
    assert isinstance(result.exception, LetheError)
    assert "reads features: the file holds texts" in result.exception.detail


def test_a_parameter_needs_a_value(raw: Path, tmp_path: Path) -> None:
    words = ["--extractor", "identity", "--parameter", "dimension"]
    result = run("extract", *words, "--data", raw, "--out", tmp_path / "out.npz")
    assert result.exit_code == 2
    assert "NAME=VALUE" in result.output


def test_the_command_offers_every_extractor() -> None:
    assert registry.known() == features.EXTRACTORS


class Service:
    """Accepts a registration, and reports it as fitted on the next request."""

    def __init__(self) -> None:
        self.manifest: dict[str, Any] = {}

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def register_model(self, manifest: dict[str, Any], data: bytes) -> None:
        self.manifest = manifest

    def model(self, ref: str) -> dict[str, Any]:
        return {"state": "ready", "current_version": 1}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    found = Service()
    monkeypatch.setattr("workers.cli.service.connect", lambda url: found)
    return found


def register(data: Path, *words: object) -> Result:
    arguments = ["register", "ridge", data, "--url", "http://x", "--ref", "m", *words]
    return CliRunner().invoke(model.model, [str(word) for word in arguments])


def test_a_registration_carries_the_digest_of_the_features_extractor(
    raw: Path, archive: Path, tmp_path: Path, service: Service
) -> None:
    out = tmp_path / "features.npz"
    words = ["--extractor", "torch-module", "--path", archive]
    run("extract", *words, "--data", raw, "--out", out)
    extractor = registry.open_extractor("torch-module", {}, path=archive)
    result = register(out)
    assert result.exit_code == 0, result.exception
    assert service.manifest["extractor"] == {
        "id": "torch-module",
        "digest": extractor.digest,
        "parameters": {"inputs": "4", "outputs": "3"},
    }
    again = registry.get(
        "torch-module", service.manifest["extractor"]["parameters"], path=archive
    )
    assert again.digest == extractor.digest
    refused = register(out, "--digest", "0" * 64)
    assert isinstance(refused.exception, LetheError)


def test_an_extractor_runs_at_registration_too(
    raw: Path, archive: Path, service: Service
) -> None:
    with np.load(raw) as before:
        arrays = {("features" if k == "inputs" else k): before[k] for k in before.files}
    np.savez(raw, **arrays)
    assert register(raw, "--extractor", "torch-module", "--path", archive).exit_code == 0
    assert service.manifest["extractor"]["id"] == "torch-module"
    assert len(service.manifest["exponents"]) == 3
    assert register(raw, "--random-features", 6, "--seed", 2).exit_code == 0
    assert service.manifest["extractor"]["digest"] == RandomRelu(4, 6, 2).digest
    assert register(raw).exit_code == 0
    assert service.manifest["extractor"]["parameters"] == {"dimension": "4"}
