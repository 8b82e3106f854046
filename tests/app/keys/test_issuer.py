"""The log rotates and revokes the issuer's key, whatever tables and key files say."""

import json
import shutil
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from sqlmodel import Session, select

from app.cli.service_key import service_key
from app.keys import rotate
from app.keys.fsck import fsck_keys
from app.keys.issuer import (
    NEXT_KEY,
    IssuerRevokedError,
    KeysChangedError,
    issuer_keys,
    signing_issuer,
)
from app.keys.rotate import revoke_issuer, rotate_issuer
from app.ledger.entry_macs import KeyMissingError
from app.ledger.startup import ISSUER_KEY, ISSUER_PEM
from app.problems import ConflictError, NotFoundError
from app.reconcile.findings import FsckReport
from app.reconcile.fsck.run import fsck
from app.service.issued import certificates
from lethe.certificates.bundle import spki_of
from lethe.certificates.issuers import IssuerError
from lethe.certificates.trust_root import TrustRoot, parse_trust_root
from lethe.certificates.verify import Verdict, verify_certificate
from lethe.cli.log import log as log_commands
from lethe.log.entries import SERVICE_KEY_EVENT, EntryError, parse_leaf, service_key_leaf
from lethe.log.key_changes import ANNOUNCED, ROTATED, KeyChange
from lethe.signing.keys import load_private_key, public_pem
from models import LogEntry
from tests.app.cli.test_backup import point_at
from tests.installation import Installation
from workers.jobs import certify


def certified(made: Installation, record: str) -> bytes:
    """Erase a record and return its certificate."""
    request = made.caller.erase_records(record).json()["id"]
    made.drain()
    answer = made.caller.http.get(f"/v1/requests/{request}/certificate")
    assert answer.status_code == 200, answer.text
    return answer.content


def root_of(made: Installation) -> TrustRoot:
    answer = made.caller.http.get("/v1/log/trust-root")
    assert answer.status_code == 200, answer.text
    return parse_trust_root(answer.content, made.services.ledger.verifier)


def verdict(data: bytes, root: TrustRoot) -> Verdict:
    return verify_certificate(data, log=root.log, issuer=root.issuers)


def names(made: Installation) -> list[str]:
    report = FsckReport()
    fsck_keys(made.settings, made.services.ledger, report)
    return [one.detail for one in report.findings]


def run(made: Installation, monkeypatch: pytest.MonkeyPatch, *words: str) -> Result:
    monkeypatch.setenv("LETHE_ORIGIN", made.settings.origin)
    point_at(made.settings, monkeypatch)
    return CliRunner().invoke(service_key, words)


def test_whoever_asks_again_and_again_has_nothing_signed(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(ready, monkeypatch, "rotate", "issuer").exit_code == 0
    ledger, signed = ready.services.ledger, list[bytes]()
    sign = ledger.sign_trust_root

    def counted(digest: bytes) -> str:
        signed.append(digest)
        return sign(digest)

    monkeypatch.setattr(ledger, "sign_trust_root", counted)
    size = root_of(ready).issuers.size
    for _ in range(3):
        assert root_of(ready).issuers.size == size
        assert "&quot;trust-root&quot;" in ready.caller.http.get("/verify").text
    assert len(signed) == 1
    ready.caller.erase_records("r1")
    assert root_of(ready).issuers.size > size
    monkeypatch.setattr(certificates, "FRESH_S", 0.0)
    assert root_of(ready).issuers.size > size
    assert len(signed) == 3


def test_certificates_of_both_keys_verify_after_a_rotation(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = certified(ready, "r1")
    assert "&quot;trust-root&quot;" not in ready.caller.http.get("/verify").text
    old = root_of(ready)
    rotated = run(ready, monkeypatch, "rotate", "issuer")
    assert rotated.exit_code == 0, rotated.output
    after = certified(ready, "r2")
    root = root_of(ready)
    assert [one.keyid for one in root.issuers.keys] == ["issuer-1", "issuer-2"]
    assert verdict(before, root).result == verdict(after, root).result == "PASS"
    assert (
        "key issuer-1 signs from entry 0 until entry" in verdict(before, root).steps[4].detail
    )
    # The older trust root stays valid for the certificates that it covers, and no others.
    assert verdict(before, old).result == "PASS"
    refused = verdict(after, old).failed
    assert refused is not None
    assert "the issuer has no such key" in refused.detail
    # The service itself verifies both, and its own documents are signed by the new key.
    for data in (before, after):
        answer = ready.caller.http.post("/v1/certificates/verify", files={"bundle": data})
        assert answer.json()["result"] == "PASS"
    page = ready.caller.http.get("/verify").text
    assert "&quot;trust-root&quot;" in page
    pem = ready.caller.http.get("/v1/certificates/issuer").text
    assert pem == public_pem(root.issuers.keys[1].key)
    assert (ready.settings.keys_dir / ISSUER_PEM).read_text() == pem
    assert not (ready.settings.keys_dir / NEXT_KEY).exists()
    assert ready.caller.http.get("/readyz").status_code == 200
    listed = run(ready, monkeypatch, "list")
    assert "issuer-2" in listed.output
    told = [
        json.loads(line)
        for line in run(ready, monkeypatch, "list", "--json").output.splitlines()
    ]
    assert ("issuer", "issuer-2") in {(one["role"], one["keyid"]) for one in told}
    ready.check()
    assert names(ready) == []
    checked = CliRunner().invoke(log_commands, ["fsck", "--json"])
    assert json.loads(checked.output)["findings"] == []


def test_what_a_revoked_key_has_logged_later_is_refused_whatever_its_date(
    ready: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = certified(ready, "r1")
    shutil.copy(ready.settings.keys_dir / ISSUER_KEY, tmp_path / "stolen.key")
    assert run(ready, monkeypatch, "rotate", "issuer", "--keyid", "new").exit_code == 0
    done = run(ready, monkeypatch, "revoke", "issuer", "issuer-1", "--reason", "key-compromise")
    assert done.exit_code == 0, done.output
    # A thief with the key and access to the log can use any date: the index decides.
    stolen = (tmp_path / "stolen.key").read_bytes()
    with monkeypatch.context() as patch:
        key = signing_issuer(ready.settings, ready.services.ledger)
        patch.setattr(
            certify,
            "signing_issuer",
            lambda *_: (load_private_key(stolen), "issuer-1", key[2]),
        )
        late = certified(ready, "r2")
    root = root_of(ready)
    assert verdict(early, root).result == "PASS"
    assert "revoked at entry" in verdict(early, root).steps[4].detail
    refused = verdict(late, root).failed
    assert refused is not None
    assert (refused.number, "was revoked at entry" in refused.detail) == (5, True)
    # fsck says so too, and the service's own verdict.
    report = fsck(
        ready.services.ledger, keys=issuer_keys(ready.settings, ready.services.ledger)
    )
    assert [one.check for one in report.findings] == ["certificate"]
    answer = ready.caller.http.post("/v1/certificates/verify", files={"bundle": late})
    assert answer.json()["result"] == "FAIL"


def test_nothing_is_signed_while_the_current_key_is_revoked(ready: Installation) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    index = revoke_issuer(settings, ledger, "issuer-1", "key-compromise")
    with pytest.raises(IssuerRevokedError, match="rotate issuer"):
        signing_issuer(settings, ledger)
    request = ready.caller.erase_records("r1").json()["id"]
    ready.drain()
    assert ready.caller.http.get(f"/v1/requests/{request}").json()["state"] == "verifying"
    assert ready.caller.http.get("/readyz").status_code == 503
    rotate_issuer(settings, ledger)
    ready.recover()
    assert ready.caller.http.get(f"/v1/requests/{request}").json()["state"] == "certified"
    keys_now = issuer_keys(settings, ledger).keys
    assert [one.revoked for one in keys_now] == [index, None]


def test_a_rotation_between_signature_and_issue_has_it_signed_again(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ready.services.ledger
    signed = signing_issuer

    def rotated_meanwhile(*given: object) -> object:
        found = signed(*given)  # type: ignore[arg-type]
        monkeypatch.undo()
        rotate_issuer(ready.settings, ledger)
        return found

    monkeypatch.setattr(certify, "signing_issuer", rotated_meanwhile)
    request = ready.caller.erase_records("r1").json()["id"]
    ready.drain()
    assert ready.caller.http.get(f"/v1/requests/{request}").json()["state"] == "verifying"
    ready.recover()
    data = ready.caller.http.get(f"/v1/requests/{request}/certificate").content
    assert "key issuer-2" in verdict(data, root_of(ready)).steps[4].detail


@pytest.mark.parametrize("crash", ["before the entry", "after the entry", "before the rename"])
def test_an_interrupted_rotation_is_finished_by_the_next(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    settings, ledger = ready.settings, ready.services.ledger

    class DiedError(Exception):
        pass

    def die(*_: object, **__: object) -> None:
        raise DiedError

    with monkeypatch.context() as patch:
        if crash == "before the entry":
            patch.setattr(ledger, "transact", die)
        elif crash == "after the entry":
            really = ledger.transact

            def logged(effect: object) -> None:
                really(effect)  # type: ignore[arg-type]
                raise DiedError

            patch.setattr(ledger, "transact", logged)
        else:
            patch.setattr(Path, "replace", die)
        with pytest.raises(DiedError):
            rotate_issuer(settings, ledger)
    logged_already = crash != "before the entry"
    current = "issuer-2" if logged_already else "issuer-1"
    assert signing_issuer(settings, ledger)[1] == current
    data = certified(ready, "r1")
    assert f"key {current}" in verdict(data, root_of(ready)).steps[4].detail
    again = rotate_issuer(settings, ledger)
    assert (again.finished, again.key.keyid) == (logged_already, "issuer-2")
    assert names(ready) == []
    assert not (settings.keys_dir / NEXT_KEY).exists()
    assert [one.keyid for one in issuer_keys(settings, ledger).keys] == ["issuer-1", "issuer-2"]


def test_a_key_file_from_before_signs_nothing_and_is_found(
    ready: Installation, tmp_path: Path
) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    for name in (ISSUER_KEY, ISSUER_PEM):
        shutil.copy(settings.keys_dir / name, tmp_path / name)
    rotate_issuer(settings, ledger)
    shutil.copy(tmp_path / ISSUER_PEM, settings.keys_dir / ISSUER_PEM)
    assert "is not the issuer's key of the log" in names(ready)[0]
    shutil.copy(tmp_path / ISSUER_KEY, settings.keys_dir / ISSUER_KEY)
    with pytest.raises(KeyMissingError, match="not the key issuer-2"):
        signing_issuer(settings, ledger)
    assert "not the key issuer-2" in names(ready)[0]
    assert ready.caller.http.get("/readyz").status_code == 503
    # Replacing a permanently lost key needs the log's key, not the issuer's.
    (settings.keys_dir / ISSUER_KEY).unlink()
    assert rotate_issuer(settings, ledger).key.keyid == "issuer-3"
    assert signing_issuer(settings, ledger)[1] == "issuer-3"


def test_the_first_key_can_be_lost_too(ready: Installation) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    certified(ready, "r1")
    (settings.keys_dir / ISSUER_KEY).unlink()
    assert rotate_issuer(settings, ledger).key.keyid == "issuer-2"
    certified(ready, "r2")
    (settings.keys_dir / ISSUER_PEM).unlink()
    assert "is not the issuer's key" in names(ready)[0]


def test_whoever_writes_the_database_adds_no_key(ready: Installation) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    certified(ready, "r1")
    theirs = generate_private_key(SECP256R1())
    first = issuer_keys(settings, ledger).keys[0]
    with Session(ready.services.engine) as session:
        size = ledger.latest().size
        day = session.exec(select(LogEntry.day)).first() or ""
        said = KeyChange(ROTATED, "theirs", spki_of(theirs.public_key()), replaces=first.spki)
        leaf = service_key_leaf(said, date.fromisoformat(day))
        row = LogEntry(
            index=size,
            leaf=leaf,
            kind=SERVICE_KEY_EVENT,
            event=ROTATED,
            day=day,
            mac=b"\0" * 32,
        )
        session.add(row)
        session.commit()
    assert [one.keyid for one in issuer_keys(settings, ledger).keys] == ["issuer-1"]
    assert [one.keyid for one in root_of(ready).issuers.keys] == ["issuer-1"]
    report = fsck(ledger, keys=issuer_keys(settings, ledger))
    assert "mac" in {one.check for one in report.findings}, report.findings


def test_what_cannot_be_rotated_or_revoked(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    with pytest.raises(NotFoundError):
        revoke_issuer(settings, ledger, "nobody", "unspecified")
    with pytest.raises(ConflictError, match="name already"):
        rotate_issuer(settings, ledger, "issuer-1")
    with pytest.raises(EntryError, match="simple name"):
        rotate_issuer(settings, ledger, "Jane Doe <jane@example.org>")
    revoke_issuer(settings, ledger, "issuer-1", "superseded")
    with pytest.raises(ConflictError, match="already revoked"):
        revoke_issuer(settings, ledger, "issuer-1", "superseded")
    stale = issuer_keys(settings, ledger)
    rotate_issuer(settings, ledger)
    monkeypatch.setattr(rotate, "issuer_keys", lambda *_: stale)
    with pytest.raises(KeysChangedError):
        rotate_issuer(settings, ledger)


def test_names_go_on_counting(ready: Installation) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    assert rotate_issuer(settings, ledger, "key").key.keyid == "key"
    assert rotate_issuer(settings, ledger).key.keyid == "key-1"
    assert rotate_issuer(settings, ledger).key.keyid == "key-2"


def test_the_first_key_is_announced_once_and_entries_name_nobody(ready: Installation) -> None:
    settings, ledger = ready.settings, ready.services.ledger
    rotate_issuer(settings, ledger)
    rotate_issuer(settings, ledger)
    with Session(ready.services.engine) as session:
        found = session.exec(
            select(LogEntry).where(LogEntry.kind == SERVICE_KEY_EVENT).order_by("index")
        ).all()
    said = [parse_leaf(row.leaf).key for row in found]
    assert [one.event for one in said if one] == [ANNOUNCED, ROTATED, ROTATED]
    members = {name for row in found for name in json.loads(row.leaf)["spec"]}
    assert members == {"at", "event", "role", "keyid", "publicKey", "replaces"}


def test_a_trust_root_written_to_a_file_is_that_of_the_route(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = certified(ready, "r1")
    path = tmp_path / "root.json"
    assert run(ready, monkeypatch, "trust-root", "--out", str(path)).exit_code == 0
    root = parse_trust_root(path.read_bytes())
    assert verdict(data, root).result == "PASS"
    printed = run(ready, monkeypatch, "trust-root").output.encode()
    assert parse_trust_root(printed).issuers == root.issuers == root_of(ready).issuers
    nowhere = run(ready, monkeypatch, "trust-root", "--out", str(tmp_path / "no/root.json"))
    assert nowhere.exit_code == 2
    with pytest.raises(IssuerError, match="newer than the trust root"):
        root.issuers.check(root.issuers.keys[0].spki, root.issuers.size)
