"""`lethe model register ridge` sends each row's owner, and says how many rows it holds back."""

import io
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from app.uploads.rows import parse_upload
from lethe.catalogue import RIDGE
from tests.uploads import Parsed, parsed
from tests.workers.cli.models.registering import FittingService
from workers.cli.models import command as model

ROWS = 40


class Service(FittingService):
    """Accepts a registration as the API does, and reports it as fitted on the next request."""

    upload: Parsed
    sent: bytes

    def register_model(self, manifest: dict[str, Any], data: bytes | None = None) -> None:
        if data is None:
            return
        parse = partial(
            parse_upload,
            dimension=len(manifest["exponents"]),
            classes=len(manifest["classes"]),
            bits=manifest["bits"],
            max_bytes=1 << 24,
        )
        self.upload, self.sent = parsed(data, parse), data


def register(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str, **arrays: Any
) -> tuple[Service, str]:
    """Register a file with these arrays too; return the service and the output."""
    rng = np.random.default_rng(0)
    service, path = Service(), tmp_path / "rows.npz"
    monkeypatch.setattr("workers.cli.service.connect", lambda url: service)
    stream = io.BytesIO()
    np.savez(
        stream,
        features=rng.normal(size=(ROWS, 3)),
        labels=np.arange(ROWS) % 2,
        clients=np.array([f"c{row % 4}" for row in range(ROWS)]),
        records=np.array([f"r{row}" for row in range(ROWS)]),
        **arrays,
    )
    path.write_bytes(stream.getvalue())
    arguments = ["register", "ridge", str(path), "--url", "http://x", "--ref", "m", *words]
    answer = CliRunner().invoke(model.model, arguments)
    assert answer.exit_code == 0, answer.output
    return service, answer.output


def test_subjects_of_the_data_are_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects = np.array([f"person-{row // 2}" for row in range(ROWS)])
    service, said = register(tmp_path, monkeypatch, subjects=subjects)
    sent = service.upload
    assert all(
        sent.subjects[i] == f"person-{int(r[1:]) // 2}" for i, r in enumerate(sent.records)
    )
    assert f"{len(set(sent.subjects))} subjects and 4 clients" in said


def test_an_array_of_another_name_is_told_and_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, said = register(tmp_path, monkeypatch, subject=np.arange(ROWS))
    assert "not used: subject\n" in said
    assert "subject" not in np.load(io.BytesIO(service.sent)).files
    _, said = register(tmp_path, monkeypatch)
    assert "not used" not in said


def test_without_subjects_they_are_the_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, _ = register(tmp_path, monkeypatch)
    assert service.upload.subjects == service.upload.clients


def test_rows_that_are_held_out_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, said = register(tmp_path, monkeypatch)
    assert service.upload.rows == ROWS - 4
    assert "registered 36 records" in said
    assert "held out: 4 rows (a tenth, drawn at random)" in said
    _, said = register(tmp_path, monkeypatch, is_test=np.arange(ROWS) < 7)
    assert "registered 33 records" in said
    assert "held out: 7 rows (by is_test)" in said


def test_held_out_rows_are_sent_where_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = np.arange(ROWS) < 7
    service, _ = register(tmp_path, monkeypatch, is_test=held)
    assert not [name for name in np.load(io.BytesIO(service.sent)) if "held_out" in name]
    service, said = register(tmp_path, monkeypatch, "--send-holdout", is_test=held)
    assert "they are sent too, sealed: every version is measured on them" in said
    sent = np.load(io.BytesIO(service.sent))
    assert sent["held_out_records"].tolist() == [f"r{row}" for row in range(7)]
    assert sent["held_out_clients"].tolist() == [f"c{row % 4}" for row in range(7)]
    assert np.array_equal(sent["held_out_labels"], np.arange(7) % 2)
    expected = np.random.default_rng(0).normal(size=(ROWS, 3))[:7]
    assert np.array_equal(sent["held_out_features"], expected)
    assert service.upload.rows == ROWS - 7


def test_identities_of_masked_models_are_sent_by_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = np.array([f"p{row}@example.org" for row in range(ROWS)])
    _, said = register(tmp_path, monkeypatch, "--rows", "masked", identity_email=people)
    assert "members send those of their rows, hashed, with `lethe round join`" in said
    assert "example.org" not in said
    _, said = register(tmp_path, monkeypatch, "--rows", "masked")
    assert "identities" not in said


def test_a_masked_model_is_sent_held_out_rows_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[str, Any] = {}

    def take(_: Service, manifest: dict[str, Any], data: bytes | None = None) -> None:
        with np.load(io.BytesIO(data or b"")) as arrays:
            sent.update({name: arrays[name] for name in arrays.files})

    monkeypatch.setattr(Service, "register_model", take)
    held = np.arange(ROWS) % 10 == 0
    emails = np.array([f"p{row}@example.org" for row in range(ROWS)])
    words = ("--rows", "masked", "--send-holdout")
    _, said = register(tmp_path, monkeypatch, *words, is_test=held, identity_email=emails)
    assert "every version is measured on them; no other row is" in said
    assert all(name.startswith("held_out_") for name in sent)
    assert sent["held_out_records"].tolist() == ["r0", "r10", "r20", "r30"]
    assert sent["held_out_features"].shape == (4, 3)
    assert len(sent["held_out_identity_email"]) == 4


@pytest.mark.parametrize("method", RIDGE)
def test_a_penalty_too_small_is_refused_before_rows_are_sent(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.npz"
    features = np.random.default_rng(0).normal(size=(ROWS, 3)) * 1e7
    clients = np.array([f"c{row % 4}" for row in range(ROWS)])
    np.savez(path, features=features, labels=np.arange(ROWS) % 2, clients=clients)

    def asked(*words: str) -> Result:
        fixed = ["register", "ridge", str(path), "--url", "http://x", "--ref", "m"]
        return CliRunner().invoke(model.model, [*fixed, "--method", method, *words])

    with monkeypatch.context() as patch:
        patch.setattr("workers.cli.service.connect", lambda url: pytest.fail("rows are sent"))
        refused = asked()
    assert refused.exit_code == 1, refused.output
    advised = re.search(r"use a penalty of at least ([0-9.e+]+)", str(refused.exception))
    assert advised, refused.exception
    monkeypatch.setattr("workers.cli.service.connect", lambda url: Service())
    accepted = asked("--penalty", advised[1].rstrip("."))
    assert accepted.exit_code == 0, accepted.output
