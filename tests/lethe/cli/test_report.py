"""`lethe report`: what is asked of the service, and a report counted again from a mirror."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result

import lethe.client
from lethe.certificates.trust_root import TrustRootError
from lethe.cli.report import report
from lethe.client import Client
from lethe.log.entries import event_leaf
from lethe.log.tiles import TILE_WIDTH, TileRef, encode_bundle, entries_path
from lethe.log.tree import leaf_hashes
from tests.lethe.certificates.build import LocalLog, log_signer
from tests.lethe.certificates.test_trust_root import NEXT, Rotated
from tests.lethe.report.test_period import LOG, REPORT, ref, report_of


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[httpx2.Request]:
    requests: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(200, content=REPORT)

    def client(url: str, **options: Any) -> Client:
        return Client(url, transport=httpx2.MockTransport(answer), **options)

    monkeypatch.setattr(lethe.client, "Client", client)
    monkeypatch.setenv("LETHE_TOKEN", "lethe_auditor_x")
    monkeypatch.setenv("LETHE_URL", "https://erasure.example")
    return requests


def run(*arguments: object) -> Result:
    return CliRunner().invoke(report, [str(argument) for argument in arguments])


def test_the_report_is_written_as_it_was_answered(asked: list[Any], tmp_path: Path) -> None:
    out = tmp_path / "report.pdf"
    days = ("--from", "2026-01-10", "--to", "2026-01-20")
    done = run("period", *days, "--format", "pdf", "--language", "de", "--out", out)
    assert (done.exit_code, done.output) == (0, f"{out}\n")
    assert out.read_bytes() == REPORT
    (request,) = asked
    assert request.url.path == "/v1/reports/period"
    assert dict(request.url.params) == {
        "from": "2026-01-10",
        "to": "2026-01-20",
        "format": "pdf",
        "language": "de",
    }
    assert request.headers["authorization"] == "Bearer lethe_auditor_x"
    assert run("period", "--from", "yesterday", "--to", "2026-01-20").exit_code == 2
    assert run("period", *days, "--out", tmp_path).exit_code == 2


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """The log as files, as `lethe log mirror` lays them out."""
    return mirror_of(LOG, tmp_path / "mirror")


def mirror_of(log: LocalLog, directory: Path) -> Path:
    size = len(log.leaves)
    assert size < TILE_WIDTH
    for name, data in {
        "checkpoint": log.checkpoint().encode(),
        TileRef(0, 0, size).path: b"".join(leaf_hashes(log.leaves)),
        entries_path(0, size): encode_bundle(log.leaves),
    }.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    return directory


class Reported(Rotated):
    """A log whose key is rotated between two requests."""

    def certify(self, **_: Any) -> Any:
        day = date(2026, 5, 1) if self.log.signer == self.old else date(2026, 12, 1)
        self.log.append(event_leaf("request.received", ref(day.month), bytes(32), day))


def test_a_report_of_before_a_rotation_is_verified_with_the_trust_root(tmp_path: Path) -> None:
    office = Reported()
    office.log.signer = office.old
    office.log.leaves, whole = office.log.leaves[: office.start], office.log.leaves
    file, key, root = (tmp_path / name for name in ("report.json", "log.vkey", "root.json"))
    file.write_bytes(report_of(office.log, date(2026, 5, 1), date(2026, 5, 31)))
    office.log.leaves, office.log.signer = whole, NEXT
    mirror = mirror_of(office.log, tmp_path / "mirror")
    key.write_text(office.old.verifier.vkey + "\n")
    root.write_bytes(office.root())
    rest = ("--log", mirror)
    assert run("verify", file, "--log-key", key, *rest).exit_code == 1
    for known in ((), ("--log-key", key)):
        done = run("verify", file, "--trust-root", root, *known, *rest)
        assert done.exit_code == 0, done.output
        assert "are those that the log's entries give" in done.output
    key.write_text(log_signer(seed=b"theirs").verifier.vkey + "\n")
    refused = run("verify", file, "--trust-root", root, "--log-key", key)
    assert isinstance(refused.exception, TrustRootError)
    assert "--log-key, --trust-root or both" in run("verify", file).output


def test_figures_are_counted_again_from_a_mirror(mirror: Path, tmp_path: Path) -> None:
    file, key = tmp_path / "report.json", tmp_path / "log.vkey"
    key.write_text(LOG.verifier.vkey + "\n")
    file.write_bytes(REPORT)
    done = run("verify", file, "--log-key", key, "--log", mirror)
    assert done.exit_code == 0, done.output
    assert "are those that the log's entries give" in done.output
    report = json.loads(REPORT)
    start, end = (report["log"][name]["size"] for name in ("start", "end"))
    assert done.output.splitlines()[1].split(":") == [
        f"      {report['first']} to {report['last']}",
        f" entries {start} to {end - 1} of {report['log']['origin']}",
    ]
    done = run("verify", file, "--log-key", key, "--log", mirror, "--json")
    said = json.loads(done.output)
    assert (said["result"], said["counted_again"]) == ("PASS", True)
    assert said["figures"] == json.loads(REPORT)["figures"]
    file.write_bytes(REPORT.replace(b'"received":2', b'"received":1'))
    done = run("verify", file, "--log-key", key, "--log", mirror)
    assert done.exit_code == 1
    assert "the figures are not those" in done.output
    done = run("verify", file, "--log-key", key, "--log", mirror, "--json")
    assert (done.exit_code, json.loads(done.output)["result"]) == (1, "FAIL")
    done = run("verify", file, "--log-key", key, "--log", tmp_path / "nowhere")
    assert done.exit_code == 1
