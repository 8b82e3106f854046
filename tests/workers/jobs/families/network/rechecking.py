"""An auditor's steps with a certificate: download what it names, and recompute it."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from lethe.certificates.bundle import parse_bundle
from lethe.certificates.statement import Statement, parse_statement
from tests.installation import Installation, make_token
from workers.cli.recheck import recheck as command


def download(installation: Installation, request_id: str, directory: Path) -> Statement:
    """Download certificate, evidence and scores as an auditor does; return the statement."""
    http = installation.caller.http
    certificate = http.get(f"/v1/requests/{request_id}/certificate").content
    (directory / "c.json").write_bytes(certificate)
    evidence = http.get(f"/v1/requests/{request_id}/evidence").content
    (directory / "e.json").write_bytes(evidence)
    found = parse_statement(parse_bundle(certificate).payload)
    token = make_token(installation.services, "auditor")
    headers = {"authorization": f"Bearer {token}"}
    for part in found.predicate.evidence[1:]:
        answer = http.get(f"/v1/scores/{part.digest}", headers=headers)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        assert sha256(answer.content).hexdigest() == part.digest
        (directory / part.name).write_bytes(answer.content)
    return found


def rechecked(directory: Path, *options: str) -> dict[str, Any]:
    """Run the command offline on the downloaded files."""
    arguments = [str(directory / "c.json"), "--evidence", str(directory / "e.json"), "--json"]
    done = CliRunner().invoke(command, [*arguments, *options])
    assert done.exit_code == (1 if '"DIFFERS"' in done.output else 0), done.output
    found: dict[str, Any] = json.loads(done.output)
    return found
