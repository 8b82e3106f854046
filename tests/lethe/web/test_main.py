"""The second verifier as a command: exit codes and output of `lethe certificate verify`."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lethe.certificates.statement import CheckPart
from lethe.certificates.verify import verify, verify_certificate
from lethe.log.note import NoteSigner
from lethe.log.policy import parse_policy
from tests.lethe.certificates.build import Office, log_signer
from tests.lethe.certificates.test_trust_root import Published
from tests.lethe.certificates.test_verify import (
    FIRST,
    LOG_TOO,
    SECOND,
    TWO_OF_THREE,
    changed,
    cosigned,
    line_by,
    note,
)
from tests.lethe.cli.certificates import run_as_main
from tests.lethe.log.logs import SIGNER
from tests.lethe.log.vectors import ROOT
from tests.lethe.web.second import NODE, needs_node

pytestmark = needs_node
MAIN = ROOT / "lethe" / "web" / "main.mjs"
CERTIFIED = Office().certify()
ROOTED = Published()
ROOTED_CERTIFICATE = ROOTED.certify()


def run(*given: Any) -> "subprocess.CompletedProcess[str]":
    assert NODE is not None
    command: Sequence[str] = [NODE, "--no-warnings", str(MAIN), *map(str, given)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    CERTIFIED.write(tmp_path)
    return tmp_path


def files(written: Path) -> list[Path]:
    return [*written.glob("certificates/*"), Path("--keys"), written / "keys"]


def test_a_certificate_with_its_files_is_authentic(written: Path) -> None:
    (evidence,) = written.glob("evidence/*")
    model = written / "models/after.safetensors"
    done = run(*files(written), "--model", model, "--evidence", evidence, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == CERTIFIED.verify().to_json()
    done = run(*files(written))
    assert done.stdout.startswith("AUTHENTIC\n")
    assert done.stdout.count("not checked") == 2


def test_another_byte_is_not_authentic(written: Path) -> None:
    (path, *rest) = files(written)
    path.write_bytes(CERTIFIED.bundle + b"\n")
    done = run(path, *rest)
    assert done.returncode == 1
    assert done.stdout.startswith("NOT AUTHENTIC\n")


def test_an_authentic_certificate_of_a_failure_exits_with_1(tmp_path: Path) -> None:
    check = CheckPart(1, "head-error", "error", "1", None, "0", False)
    Office().certify(checks=(check,), result="FAIL").write(tmp_path)
    done = run(*files(tmp_path))
    assert done.returncode == 1
    assert done.stdout.startswith("AUTHENTIC\n")
    assert "not PASS" in done.stderr


def test_witnesses_are_required_and_their_names_are_harmless(written: Path) -> None:
    (path, *rest) = files(written)
    vkey = written / "witness.vkey"
    vkey.write_text(log_signer("witness.example", b"witness").verifier.vkey + "\n")
    assert run(path, *rest, "--witness", vkey).returncode == 1
    assert run(path, *rest, "--witness", vkey, "--threshold", "0").returncode == 0
    path.write_bytes(changed(note(lambda c: c + line_by("witness.example", c))))
    assert run(path, *rest, "--witness", vkey).returncode == 0
    path.write_bytes(changed(note(lambda c: c + line_by("\u202eelpmaxe", c))))
    assert "\u202e" not in run(path, *rest).stdout


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["--keys", "nowhere", "x"],
        ["--unknown"],
        ["a", "b", "--keys", "."],
        ["x", "--keys", ".", "--threshold", "2"],
    ],
)
def test_what_cannot_be_used_exits_with_2(given: list[str]) -> None:
    done = run(*given)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert done.stdout == ""


def test_a_private_key_is_refused_with_a_remedy(written: Path) -> None:
    (written / "keys/issuer.pem").write_text("-----BEGIN PRIVATE KEY-----\n")
    done = run(*files(written))
    assert done.returncode == 2
    assert "tell the operator" in done.stderr


def test_it_needs_no_package(tmp_path: Path, written: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    for path in MAIN.parent.glob("*.mjs"):
        shutil.copy(path, alone)
    assert NODE is not None
    command = [NODE, "--no-warnings", str(alone / "main.mjs"), *map(str, files(written))]
    assert subprocess.run(command, capture_output=True, cwd=alone, check=False).returncode == 0


def test_a_policy_and_the_logs_second_key_are_taken_as_by_the_first(written: Path) -> None:
    (path, *rest) = files(written)
    second = written / "log-mldsa.vkey"
    second.write_text(f"{LOG_TOO.verifier.vkey}\n")
    (written / "policy").write_text(TWO_OF_THREE)
    given = [path, *rest, "--policy", written / "policy", "--log-mldsa-key", second, "--json"]
    data = cosigned(LOG_TOO, FIRST, SECOND)
    path.write_bytes(data)
    done = run(*given)
    assert done.returncode == 0, done.stderr
    policy = parse_policy(TWO_OF_THREE.encode())
    steps = verify_certificate(
        data,
        log=CERTIFIED.log,
        issuer=CERTIFIED.issuer,
        policy=policy,
        log_ml_dsa=LOG_TOO.verifier,
    ).to_json()["steps"]
    assert json.loads(done.stdout)["steps"] == steps
    path.write_bytes(cosigned(LOG_TOO, FIRST))
    assert run(*given).returncode == 1
    assert run(*given, "--threshold", "1", "--witness", second).returncode == 2
    second.write_text((written / "keys/log.vkey").read_text())
    refused = run(*given)
    assert (refused.returncode, "not an ML-DSA-44 key" in refused.stderr) == (2, True)


@pytest.mark.parametrize("verifier", ["python", "javascript", "function"])
def test_a_second_key_in_the_directory_of_keys_must_have_signed(
    written: Path, verifier: str
) -> None:
    """Otherwise a bit of its line could be flipped, and nothing would notice."""
    path, *rest = files(written)
    directory = written / "keys"

    def passes(data: bytes) -> bool:
        path.write_bytes(data)
        if verifier == "function":
            return verify(path, keys=directory).result == "PASS"
        if verifier == "javascript":
            return run(path, *rest).returncode == 0
        return run_as_main("verify", path, *rest).exit_code == 0

    assert passes(CERTIFIED.bundle)
    (directory / "log-mldsa.vkey").write_text(f"{LOG_TOO.verifier.vkey}\n")
    assert not passes(CERTIFIED.bundle)
    both = cosigned(LOG_TOO)
    assert passes(both)
    line = both.rindex(f"{LOG_TOO.verifier.name} ".encode())
    for place in (line, line + 20, line + 1000, line + 3000):  # name, key id, signature
        flipped = bytearray(both)
        flipped[place] ^= 1
        assert not passes(bytes(flipped)), place


def test_a_trust_root_stands_in_for_both_keys(written: Path) -> None:
    (written / "root.json").write_bytes(ROOTED.root())
    (written / "certificate").write_bytes(ROOTED_CERTIFICATE.bundle)
    done = run(written / "certificate", "--trust-root", written / "root.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "key issuer-2026 signs from entry 0" in done.stdout
    both = run(*files(written), "--trust-root", written / "root.json")
    assert both.returncode == 2
    (written / "root.json").write_bytes(b"{}")
    broken = run(written / "certificate", "--trust-root", written / "root.json")
    assert broken.returncode == 2


def test_a_name_in_an_error_does_not_act_on_a_terminal(written: Path) -> None:
    signer = NoteSigner("log.example\x9b8m", SIGNER.key)
    (written / "keys/log.vkey").write_text(f"{signer.verifier.vkey}\n")
    (written / "keys/log-mldsa.vkey").write_text(f"{signer.verifier.vkey}\n")
    done = run(*files(written))
    assert done.returncode == 2
    assert done.stderr == "Error: this is not an ML-DSA-44 key of log.example\ufffd8m\n"
