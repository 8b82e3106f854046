"""`lethe audit`: what is asked of the service, and what is said of a report."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result

import lethe.client
from lethe.cli.audit import audit
from lethe.client import Client
from lethe.signing.keys import public_pem
from tests.lethe.certificates import test_audit_report as reports
from tests.lethe.certificates.build import issuer_key

ID = "5f8d5c0e-6a53-4d0e-b7a4-0a6f0f9f2b11"
SHOWN = {
    "id": ID,
    "started_at": "2026-11-21T08:30:00Z",
    "model": "x-rays",
    "method": "puf-special",
    "state": "running",
    "pairs_done": 3,
    "config": {"pairs": "64"},
    "result": None,
    "problem": None,
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[httpx2.Request]:
    """What a service that knows one audit was asked."""
    requests: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        if request.url.path.endswith(("/report", "/statistics")):
            return httpx2.Response(200, content=request.url.path.encode())
        page = {"items": [SHOWN], "next": None}
        listed = request.method == "GET" and request.url.path == "/v1/audits"
        return httpx2.Response(200, json=page if listed else SHOWN)

    def client(url: str, **options: Any) -> Client:
        return Client(url, transport=httpx2.MockTransport(answer), **options)

    monkeypatch.setattr(lethe.client, "Client", client)
    monkeypatch.setenv("LETHE_TOKEN", "lethe_operator_x")
    monkeypatch.setenv("LETHE_URL", "https://erasure.example")
    return requests


def run(*arguments: object) -> Result:
    return CliRunner().invoke(audit, [str(argument) for argument in arguments])


def test_start_sends_what_was_given_and_no_seed_of_its_own(asked: list[Any]) -> None:
    result = run("start", "--model", "x-rays", "--pairs", 32, "--every-days", 30)
    assert result.output == f"{ID}\n"
    (request,) = asked
    assert (request.method, request.url.path) == ("POST", "/v1/audits")
    assert request.headers["authorization"] == "Bearer lethe_operator_x"
    sent = json.loads(request.content)
    assert "seed" not in sent
    assert "method" not in sent
    assert (sent["pairs"], sent["every_days"], sent["model"]) == (32, 30, "x-rays")


def test_a_terminal_does_not_obey_what_the_service_answers(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHOWN, "id", "\x1b[2Jcleared")
    monkeypatch.setitem(SHOWN, "state", "\x1b]0;title\x07")
    assert run("start", "--model", "x-rays").output == "\N{REPLACEMENT CHARACTER}[2Jcleared\n"
    assert "\x1b" not in run("stop", ID).output


def test_audits_are_listed_shown_and_stopped(asked: list[Any]) -> None:
    assert "running  3/64   -" in run("list").output
    assert json.loads(run("list", "--json").output) == SHOWN
    assert json.loads(run("show", ID).output) == SHOWN
    assert run("stop", ID).output == "running\n"
    assert json.loads(run("stop", ID, "--json").output) == SHOWN
    assert asked[-1].url.path == f"/v1/audits/{ID}/stop"


def test_report_and_numbers_are_written(asked: list[Any], tmp_path: Path) -> None:
    assert run("get", ID, "--out", tmp_path / "new").exit_code == 0
    for part in ("report", "statistics"):
        written = (tmp_path / "new" / f"{part}.json").read_bytes()
        assert written == f"/v1/audits/{ID}/{part}".encode()


def test_a_report_is_verified_and_told_offline(tmp_path: Path) -> None:
    report, numbers, key = (tmp_path / name for name in ("report", "numbers", "issuer.pem"))
    report.write_bytes(reports.file(reports.predicate()))
    numbers.write_bytes(reports.STATISTICS)
    key.write_text(public_pem(issuer_key().public_key()))
    result = run("verify", report, "--issuer-key", key, "--statistics", numbers)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("PASS")
    said = ("NOTHING-FOUND", "epsilon at least 0", "without one error", "KLoM", "audit.started")
    for text in said:
        assert text in result.output
    told = json.loads(run("verify", report, "--issuer-key", key, "--json").output)
    assert (told["result"], told["report"]["result"]) == ("PASS", "NOTHING-FOUND")
    assert (
        "KLoM" not in run("verify", report, "--issuer-key", key).output
    )  # it needs the numbers
    numbers.write_bytes(b"other")
    result = run("verify", report, "--issuer-key", key, "--statistics", numbers)
    assert result.exit_code == 1
    assert result.output.startswith("FAIL")
    assert "NOTHING-FOUND" not in result.output
    arguments = (report, "--issuer-key", key, "--statistics", numbers, "--json")
    failed = run("verify", *arguments)
    assert (failed.exit_code, json.loads(failed.output)["result"]) == (1, "FAIL")


def test_a_key_of_another_kind_cannot_be_used(tmp_path: Path) -> None:
    from lethe.certificates.keys import PublicKeyError
    from lethe.signing.keys import generate_key

    key = tmp_path / "issuer.pem"
    key.write_text(public_pem(generate_key("ed25519").public_key()))
    error = run("verify", key, "--issuer-key", key).exception
    assert isinstance(error, PublicKeyError)
    assert "P-256" in error.detail
