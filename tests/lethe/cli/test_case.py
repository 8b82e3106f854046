"""`lethe case` against a service that answers what it likes."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result

from lethe.cli.case import case
from lethe.cli.drop import drop
from lethe.client import Client
from lethe.client.errors import AnswerError
from lethe.identity import Identity
from lethe.report.queue import COLUMNS
from tests.lethe.cli.test_webhook import BASE, TOKEN
from tests.lethe.protocols.test_drop_lists import EMAIL, archive
from tests.lethe.protocols.test_drop_lists import listed as hashed_list

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


LINE: dict[str, Any] = {
    **dict.fromkeys(COLUMNS, "x"),
    "model": "=1+1",
    "requester": "\x1b[2J\x9b8m\u202e",
    "days_left": -1,
    "overdue": True,
    "held": False,
}


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The pages of the queue; the last one is answered again and again."""
    pages: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        page = pages[0]
        if len(pages) > 1:
            del pages[0]
        return httpx2.Response(200, json=page)

    class Inside(Client):
        def __init__(self, base: str, **options: Any) -> None:
            super().__init__(base, transport=httpx2.MockTransport(answer), **options)

    monkeypatch.setattr("lethe.client.Client", Inside)
    return pages


def listed(*words: str) -> Result:
    environment = {"LETHE_URL": BASE, "LETHE_TOKEN": TOKEN}
    return CliRunner().invoke(case, ["list", *words], env=environment)


def test_the_queue_as_csv_does_not_act_on_a_terminal(queue: list[dict[str, Any]]) -> None:
    queue.append({"items": [LINE], "next": None})
    found = listed("--csv")
    assert found.exit_code == 0, found.output
    line = found.output.splitlines()[1]
    assert line.isprintable()
    assert "'=1+1" in line
    assert ",-1," in line


def test_a_queue_whose_cursor_leads_to_itself_is_refused(queue: list[dict[str, Any]]) -> None:
    queue += [{"items": [LINE], "next": "a"}] * 3
    assert isinstance(listed("--json").exception, AnswerError)


class Careless:
    """A service that opens a case with any reference."""

    def __init__(self, ref: Any) -> None:
        self.ref = ref

    def __enter__(self) -> "Careless":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def find_person(self, person: Identity) -> list[dict[str, Any]]:
        return [{"model": "m", "records": ["r"], "held_out": [], "erased": 0, "uncertified": 0}]

    def open_case(self, person: Identity, ticket: str, **_: Any) -> dict[str, Any]:
        return {"ref": self.ref}


@pytest.mark.parametrize("ref", [f"{REF}\nABCDEFGHIJKL,{REF},1", "=1+1", "é", 7])
def test_a_service_adds_no_line_to_what_a_deletion_list_noted(
    ref: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cases.csv` is believed by the next run: this line would end another work item."""
    monkeypatch.setattr("lethe.cli.saved.client", lambda _: Careless(ref))
    file = archive(tmp_path / "lists.zip", (EMAIL, hashed_list("ada@example.org")))
    found = CliRunner().invoke(
        drop, ["process", str(file), "--out", str(tmp_path / "out"), "--url", BASE]
    )
    assert isinstance(found.exception, AnswerError)
    assert "reference" in str(found.exception)
    assert (tmp_path / "out" / "cases.csv").read_text() == ""
