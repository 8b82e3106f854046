"""Blocks of the pages for auditors: openssl, SCITT, the digests of the code."""

import json
import os
import shutil
import subprocess
import sys
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from app.ledger.cose_receipt import sign_receipt
from app.ledger.receipt import EntryReceipt
from lethe.certificates.bundle import parse_bundle
from tests.docs.markdown import blocks
from tests.lethe.certificates.build import Office
from workers.families.network.family import FAMILY as NETWORK
from workers.families.ridge.family import FAMILY as RIDGE
from workers.provenance import code_digest

SHELLS = [shell for shell in ("sh", "bash") if shutil.which(shell)]


def _run(shell: str, directory: Path, file: Path) -> subprocess.CompletedProcess[str]:
    (block,) = [text for text in blocks("docs/auditor-guide.md", "sh") if "openssl" in text]
    return subprocess.run(
        [shell, "-euc", block],
        cwd=directory,
        env={**os.environ, "file": str(file), "issuer": str(directory / "keys" / "issuer.pem")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_a_certificate_verifies_and_is_shown(shell: str, tmp_path: Path) -> None:
    file = Office().certify().write(tmp_path)
    done = _run(shell, tmp_path, file)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("Verified OK\n")
    assert (
        '"predicateType": "https://w3id.org/lethe-ledger/erasure-certificate/v1"' in done.stdout
    )


def test_a_changed_payload_does_not_verify(tmp_path: Path) -> None:
    file = Office().certify().write(tmp_path)
    bundle = json.loads(file.read_bytes())
    payload = b64decode(bundle["dsseEnvelope"]["payload"])
    changed = payload.replace(b'"result":"PASS"', b'"result":"FAIL"')
    assert changed != payload
    bundle["dsseEnvelope"]["payload"] = b64encode(changed).decode()
    file.write_text(json.dumps(bundle))
    done = _run("sh", tmp_path, file)
    assert done.returncode != 0
    assert "Verified OK" not in done.stdout


def test_the_block_of_code_digests_prints_those_of_certificates() -> None:
    (block,) = [text for text in blocks("docs/auditor-guide.md", "sh") if "code_digest" in text]
    done = subprocess.run(
        ["sh", "-euc", block],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    rooms = [RIDGE.rooms, NETWORK.rooms, RIDGE.judge_rooms, NETWORK.judge_rooms]
    printed = [line.split()[-1] for line in done.stdout.splitlines()]
    assert printed == [code_digest(*one) for one in rooms]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_block_for_scitt_verifies_a_receipt(shell: str, tmp_path: Path) -> None:
    office = Office()
    certified = office.certify()
    file, log = certified.write(tmp_path), office.log
    entry = parse_bundle(certified.bundle).entry
    proof = entry.inclusion_proof
    found = EntryReceipt(
        entry.log_index,
        proof.tree_size,
        entry.canonicalized_body,
        proof.hashes,
        proof.checkpoint.envelope,
    )
    receipt = tmp_path / "receipt.cose"
    (block,) = [text for text in blocks("docs/certificate.md", "sh") if "scitt-cose" in text]
    for changed, status in ((b"", 0), (b"!", 1)):
        receipt.write_bytes(sign_receipt(log.signer, found, "urn:uuid:x") + changed)
        done = subprocess.run(
            [shell, "-euc", block],
            cwd=tmp_path,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "file": str(file),
                "keys": str(tmp_path / "keys"),
                "receipt": str(receipt),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
