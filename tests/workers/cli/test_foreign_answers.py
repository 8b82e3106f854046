"""No command ends with a traceback because an answer is not one of this API."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lethe.cli.main import lethe
from lethe.signing.keys import private_pem
from tests.lethe.cli.foreign import Foreign, check_refused, serve
from tests.lethe.signing.signer import ED25519
from workers.data.extractors.identity import Identity

COMMANDS = (
    "model list",
    "model show REF",
    "model delete REF --yes",
    "round open --model m --member k",
    "round status ID",
    "round abort ID",
    "client asked --key {key}",
    "client release --key {key} --data {data}",
)


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Foreign:
    monkeypatch.setenv("LETHE_CONFIG", str(tmp_path / "none.toml"))
    return serve(monkeypatch)


def in_words(line: str, tmp_path: Path) -> list[str]:
    """Return the words of a command with a key and a file of rows."""
    (tmp_path / "key.pem").write_text(private_pem(ED25519))
    np.savez(
        tmp_path / "rows.npz",
        features=np.ones((2, 3), np.float32),
        labels=np.zeros(2, np.int64),
        clients=np.array(["c", "c"]),
        records=np.array(["r1", "r2"]),
    )
    return line.format(key=tmp_path / "key.pem", data=tmp_path / "rows.npz").split()


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_refuses_an_answer_that_is_not_one_of_this_api(
    line: str, foreign: Foreign, tmp_path: Path
) -> None:
    least = 0 if line.startswith("round") else 1  # they print it as it is
    check_refused(lethe, foreign, in_words(line, tmp_path), least)


@pytest.mark.parametrize("data", ["rows", "statistics"])
def test_a_contribution_refuses_an_answer_that_is_not_one_of_this_api(
    data: str, foreign: Foreign, tmp_path: Path
) -> None:
    call = "GET /v1/models/{ref}/manifest"
    described: dict[str, Any] = {"data": data, "family": "ridge", "classes": ["a"], "bits": 8}
    sized: dict[str, Any] = {"exponents": [0, 0, 0], "columns": 3, "categories": {}}
    foreign.told[call] = foreign.answer(call) | described | sized
    extractor = {"id": "identity", "digest": Identity(3).digest, "parameters": {}}
    foreign.told[call]["extractor"] = extractor
    line = "client contribute --key {key} --model m --data {data}"
    check_refused(lethe, foreign, in_words(line, tmp_path))
