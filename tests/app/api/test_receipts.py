"""The certificate's COSE receipt over HTTP and on the command line."""

import base64
import json
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner
from scitt_cose import verify_receipt
from sqlalchemy import update
from sqlmodel import Session, col, select

from app.cli.receipt import receipt as command
from app.settings import Settings
from lethe.signing.keys import PrivateKey, public_pem
from models import Certificate
from tests.app.api.test_documents import path_of
from tests.app.api.test_requests import problem
from tests.installation import Installation


@pytest.fixture
def certified(installation: Installation, with_certificate: PrivateKey) -> Installation:
    installation.caller.key = with_certificate
    return installation


def leaf_of(bundle: bytes) -> bytes:
    entry = json.loads(bundle)["verificationMaterial"]["tlogEntries"][0]
    return base64.b64decode(entry["canonicalizedBody"])


def test_the_receipt_is_of_the_certificate_beside_it(certified: Installation) -> None:
    http, path = certified.caller.http, path_of(certified)
    answer = http.get(f"{path}/receipt")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == 'application/cose; cose-type="cose-sign1"'
    bundle = http.get(path).content
    key = certified.services.ledger.verifier.key
    result = verify_receipt(
        answer.content,
        leaf_entry_hex=leaf_of(bundle).hex(),
        log_public_key_pem=public_pem(key),  # type: ignore[arg-type]
    )
    assert result.ok, result.errors
    payload = json.loads(base64.b64decode(json.loads(bundle)["dsseEnvelope"]["payload"]))
    assert result.subject == f"urn:uuid:{payload['predicate']['certificateId']}"
    assert http.get(f"{path}/receipt").content == answer.content
    known = {"if-none-match": answer.headers["etag"]}
    assert http.get(f"{path}/receipt", headers=known).status_code == 304


def test_a_request_without_a_certificate_has_no_receipt(ready: Installation) -> None:
    asked = ready.caller.erase_records("r1").json()
    of = f"/v1/requests/{asked['id']}/certificate/receipt"
    problem(ready.caller.http.get(of), 404, "certificate-not-issued")
    other = f"/v1/requests/{uuid4()}/certificate/receipt"
    problem(ready.caller.http.get(other), 404, "not-found")


def test_a_changed_envelope_gets_no_receipt(certified: Installation) -> None:
    """Whoever writes the database may name another certificate; its receipt is not signed."""
    path = path_of(certified)
    with Session(certified.services.engine) as session:
        row = session.exec(select(Certificate)).one()
        envelope = dict(row.envelope)
        payload = base64.b64decode(envelope["payload"]).replace(b"PASS", b"FAIL", 1)
        envelope["payload"] = base64.b64encode(payload).decode()
        session.connection().execute(
            update(Certificate)
            .where(col(Certificate.request_id) == row.request_id)
            .values(envelope=envelope)
        )
        session.commit()
    problem(certified.caller.http.get(f"{path}/receipt"), 500, "receipt-refused")


def test_the_command_writes_the_same_receipt(
    certified: Installation,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    http, path = certified.caller.http, path_of(certified)
    file = tmp_path / "one.sigstore.json"
    file.write_bytes(http.get(path).content)
    monkeypatch.setattr("app.cli.receipt.Settings", lambda: settings)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, [str(file)])
    assert (done.exit_code, done.output) == (0, "one.cose\n"), done.exception
    assert (tmp_path / "one.cose").read_bytes() == http.get(f"{path}/receipt").content
    file.write_bytes(http.get(path).content[:-1])
    refused = CliRunner().invoke(command, [str(file), "--out", str(tmp_path / "two.cose")])
    assert refused.exit_code != 0
    assert not (tmp_path / "two.cose").exists()
    out = CliRunner().invoke(command, [str(tmp_path / "one.cose"), "--out", str(tmp_path)])
    assert out.exit_code == 2
