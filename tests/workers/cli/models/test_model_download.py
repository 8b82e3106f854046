"""`lethe model download` writes what the log names, its signature, or other formats."""

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import model_signing
import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load, save
from sqlmodel import Session, select

from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.client import Client
from lethe.errors import LetheError
from lethe.estimators import ExactGaussianNB
from models import Model
from tests.installation import Installation, install
from tests.small import MODEL, rows
from workers.artifacts import decode_head
from workers.cli.models import command as model
from workers.cli.models import conversion
from workers.cli.models.download import is_tensors, native_suffix
from workers.families.ridge.family import FAMILY as RIDGE


@pytest.fixture
def here(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Installation]:
    """A fitted model, and commands that reach its service from an empty directory."""
    with install(settings) as made:
        made.ready()
        monkeypatch.setattr("workers.cli.service.connect", lambda url: made.client())
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        yield made


def download(*words: str) -> Result:
    return CliRunner().invoke(model.model, ["download", "--url", "http://x", *words])


def test_the_current_version_and_its_signature(here: Installation) -> None:
    answer = download(MODEL)
    assert answer.exit_code == 0, answer.output
    file = Path(f"{MODEL}-1.safetensors")
    beside = Path(f"{file}.sig")
    assert sorted(Path().iterdir()) == [file, beside]
    command = f"verify key --public_key issuer.pem --signature {beside} {file}"
    assert command in answer.output
    issuer = Path("issuer.pem")
    issuer.write_bytes(here.caller.http.get("/v1/certificates/issuer").content)
    verifier = model_signing.verifying.Config().use_elliptic_key_verifier(public_key=issuer)  # type: ignore[no-untyped-call]
    verifier.verify(file, beside)


def test_safetensors_are_the_native_file_where_it_is_one(here: Installation) -> None:
    answer = download(MODEL, "--format", "safetensors")
    assert answer.exit_code == 0, answer.output
    file = Path(f"{MODEL}-1.safetensors")
    assert sorted(Path().iterdir()) == [file, Path(f"{file}.sig")]
    assert load(file.read_bytes())["head"].shape[0] == rows()["features"].shape[1]
    assert not is_tensors(b"\x08\x00\x00\x00\x00\x00\x00\x00ONNX model")
    assert not is_tensors(b"")
    nested = b"[" * 100_000
    assert not is_tensors(len(nested).to_bytes(8, "little") + nested)


@pytest.mark.parametrize("written", ["../x", "a/b", "\x9b8m", "", ["onnx"]])
def test_a_service_chooses_no_folder(written: Any) -> None:
    with pytest.raises(LetheError, match="invalid file format"):
        native_suffix({"script": {"output": written}}, b"")


@pytest.mark.parametrize(
    ("config", "file", "suffix"),
    [
        ({"script": {"output": "onnx"}}, b"\x08\x0a\x12\x05lethe", "onnx"),
        # Shards of a program that writes ONNX are stored in a container, which is safetensors.
        ({"script": {"output": "onnx"}, "shards": {"count": 2}}, save({}), "safetensors"),
        ({"sums": {}}, ExactGaussianNB().fit([[0.0], [1.0]], [0, 1]).model_bytes(), "lethe"),
    ],
)
def test_a_native_file_is_named_by_what_it_holds(
    config: dict[str, Any], file: bytes, suffix: str
) -> None:
    assert native_suffix(config, file) == suffix


def test_a_model_is_deleted_once_it_is_confirmed(here: Installation) -> None:
    def delete(*words: str, answer: str | None = None) -> Result:
        arguments = ["delete", "--url", "http://x", MODEL, *words]
        return CliRunner().invoke(model.model, arguments, input=answer)

    declined = delete(answer="n\n")
    assert declined.exit_code == 1
    assert "has 1 version.\n" in declined.output
    assert download(MODEL).exit_code == 0
    assert "deleted small: log entry" in delete("--yes").output
    again = json.loads(delete("--yes", "--json").output)
    assert again["ref"] == MODEL
    gone = download(MODEL).exception
    assert isinstance(gone, LetheError)
    assert gone.status == 410


def test_an_onnx_file_predicts_as_the_head_does(here: Installation) -> None:
    out = Path("model.onnx")
    answer = download(f"{MODEL}@1", "--format", "onnx", "--out", str(out))
    assert answer.exit_code == 0, answer.output
    assert sorted(Path().iterdir()) == [out]
    head = here.caller.operator("GET", f"/v1/models/{MODEL}/versions/1/artifact").content
    weights, _ = decode_head(head)
    features = rows(seed=5)["features"]
    best = (features.astype(np.float64) @ weights.astype(np.float64)).argmax(axis=1)
    label, _ = onnxruntime.InferenceSession(out).run(None, {"features": features})
    assert label.tolist() == [str(number) for number in best]


def test_a_file_is_converted_in_a_process_with_limits(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library crashes, loops and takes gigabytes on a malformed file of a service."""

    def convert_here(*_: Any) -> bytes:
        raise AssertionError("converted without limits")

    monkeypatch.setattr(type(RIDGE), "export", convert_here)
    assert download(MODEL, "--format", "onnx").exit_code == 0
    monkeypatch.setattr(Client, "artifact", lambda *_: b"no head")
    monkeypatch.setattr(
        Client, "version", lambda *_: {"number": 1, "head": sha256(b"no head").hexdigest()}
    )
    refused = download(MODEL, "--format", "onnx", "--out", "refused.onnx").exception
    assert "not a canonical head file" in str(refused)
    assert not Path("refused.onnx").exists()


@pytest.mark.parametrize(
    "planted",
    [
        "import os; os.abort()",
        "data = bytearray(1 << 34)",
        "while True: pass",
    ],
)
def test_a_conversion_that_crashes_or_exceeds_a_limit_is_named(
    planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = (
        f"from workers.cli.models import conversion\nconversion.SECONDS = 1\n"
        f"def fails(*_, **__):\n    {planted}\n"
        f"conversion._converted = fails\nconversion.main()\n"
    )
    (tmp_path / "planted.py").write_text(child)
    monkeypatch.setattr(conversion, "__name__", "planted")
    monkeypatch.setattr(conversion, "ROOT", f"{conversion.ROOT}{os.pathsep}{tmp_path}")
    with pytest.raises(LetheError, match="the process failed, or needed more than"):
        conversion.convert(b"file", "onnx", ["a"], {})


def test_a_withdrawn_version_is_gone(here: Installation) -> None:
    here.caller.erase_records("r1")
    here.drain()
    answer = download(f"{MODEL}@1")
    assert isinstance(answer.exception, LetheError)
    assert answer.exception.status == 410
    assert not list(Path().iterdir())
    assert download(f"{MODEL}@current").exit_code == 0
    assert Path(f"{MODEL}-2.safetensors").exists()


def test_another_file_than_the_log_names_is_not_written(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Client.artifact
    monkeypatch.setattr(
        Client, "artifact", lambda client, *names: honest(client, *names)[:-1] + b"?"
    )
    answer = download(MODEL)
    assert isinstance(answer.exception, LetheError)
    assert "does not have the digest" in str(answer.exception)
    assert not list(Path().iterdir())


@pytest.mark.parametrize("number", [2, "1", True, 1.0, "\x1c1", None])
def test_another_version_than_was_asked_for_is_not_written(
    here: Installation, monkeypatch: pytest.MonkeyPatch, number: Any
) -> None:
    honest = Client.version
    monkeypatch.setattr(
        Client, "version", lambda client, *names: {**honest(client, *names), "number": number}
    )
    answer = download(f"{MODEL}@1")
    assert isinstance(answer.exception, LetheError)
    assert "another version" in str(answer.exception)
    assert not list(Path().iterdir())


def test_a_model_that_is_not_ready_is_downloaded_with_a_warning(here: Installation) -> None:
    with Session(here.services.engine) as session:
        session.exec(select(Model)).one().state = "quarantined"
        session.commit()
    assert "quarantined, not ready" in download(MODEL).stderr


@pytest.mark.parametrize("name", ["", "@1", "small@0", "small@-1", "small@x", "a@1@2"])
def test_a_name_that_is_none_is_a_named_mistake(name: str) -> None:
    answer = download(name)
    assert answer.exit_code == 2
    assert "REF@N" in answer.output
