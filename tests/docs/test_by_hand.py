"""The auditor guide's block for openssl accepts a certificate and refuses a changed one."""

import json
import os
import shutil
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from tests.docs.markdown import blocks
from tests.lethe.certificates.build import Office

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
