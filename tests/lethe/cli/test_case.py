"""`lethe case` against a service that answers what it likes."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result

from lethe.cli.case import case
from lethe.client import Client
from lethe.client.errors import AnswerError
from tests.lethe.cli.test_webhook import BASE, TOKEN

REF = "0b5d1c1e-6a4e-4b52-9d39-0d5a6c6d2f11"
FILE = b"whatever the service sends"


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models of the case's parts, as the service names them."""
    named: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path != f"/v1/cases/{REF}":
            return httpx2.Response(200, content=FILE)
        certificate = f"/v1/requests/{REF}/certificate"
        parts = [{"model": one, "certificate": certificate, "request": REF} for one in named]
        return httpx2.Response(200, json={"parts": parts})

    class Inside(Client):
        def __init__(self, base: str, **options: Any) -> None:
            super().__init__(base, transport=httpx2.MockTransport(answer), **options)

    monkeypatch.setattr("lethe.client.Client", Inside)
    return named


def summary(folder: Path) -> Result:
    """Download the answer to a case and its certificates."""
    files = ["--out", str(folder / "answer.json"), "--certificates", str(folder / "made")]
    environment = {"LETHE_URL": BASE, "LETHE_TOKEN": TOKEN}
    return CliRunner().invoke(case, ["summary", REF, *files], env=environment)


def test_certificates_are_named_as_their_models(models: list[str], tmp_path: Path) -> None:
    models += ["churn", "credit-2.1"]
    assert summary(tmp_path).exit_code == 0
    found = {path.name for path in (tmp_path / "made").iterdir()}
    assert found == {"churn.sigstore.json", "credit-2.1.sigstore.json"}


@pytest.mark.parametrize("name", ["../outside", "{folder}/outside", "..", "a/b", "\x1b[2J", 7])
def test_a_service_chooses_no_folder(models: list[Any], tmp_path: Path, name: Any) -> None:
    models.append(name.format(folder=tmp_path) if isinstance(name, str) else name)
    refused = summary(tmp_path)
    assert isinstance(refused.exception, AnswerError)
    assert {path.name for path in tmp_path.rglob("*")} == {"answer.json", "made"}
