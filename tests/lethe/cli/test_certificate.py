"""`lethe certificate verify` as a user meets it: files in, a table or JSON and an exit code out."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lethe.log.cosigner import Cosigner
from tests.lethe.certificates.build import BEFORE, CERTIFICATE_ID, Office, log_signer
from tests.lethe.cli.certificates import bundle_in, run, verify


def both(files: Path) -> list[object]:
    evidence = files / f"evidence/{CERTIFICATE_ID}.json"
    return ["--model", files / "models/after.safetensors", "--evidence", evidence]


def test_a_genuine_certificate_exits_0_with_a_numbered_table(files: Path) -> None:
    result = verify(files, *both(files))
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("AUTHENTIC  ")
    assert [line.split()[:2] for line in lines[1:10]] == [
        [str(number), "pass"] for number in range(1, 10)
    ]
    assert "The certificate is authentic. It says:" in result.output
    assert "58 after" in result.output


def test_unasked_steps_are_marked_as_not_checked(files: Path) -> None:
    result = verify(files)
    assert result.exit_code == 0
    assert [line.split()[1] for line in result.output.splitlines()[8:10]] == ["-", "-"]
    assert result.output.count("not checked") == 2


def test_json_is_the_fixed_form(files: Path) -> None:
    verdict = json.loads(verify(files, *both(files), "--json").output)
    assert verdict.keys() == {"result", "outcome", "steps"}
    assert verdict["result"] == "PASS"
    assert [step["number"] for step in verdict["steps"]] == list(range(1, 10))
    assert all(step["passed"] is True for step in verdict["steps"])


def test_a_forged_certificate_exits_1_and_names_the_step(files: Path) -> None:
    path = bundle_in(files)
    path.write_bytes(path.read_bytes().replace(b'"treeSize":"7"', b'"treeSize":"8"'))
    result = verify(files)
    assert result.exit_code == 1
    assert result.output.startswith("NOT AUTHENTIC  ")
    assert "5  FAIL  checkpoint signature and origin" in result.output
    assert result.output.count("not reached") == 4
    assert "is authentic" not in result.output
    verdict = json.loads(verify(files, "--json").output)
    assert verdict["result"] == "FAIL"
    assert verdict["steps"][4]["passed"] is False


@pytest.mark.parametrize("result", ["FAIL", "INCONCLUSIVE"])
def test_an_authentic_certificate_of_a_removal_that_failed_exits_1(
    tmp_path: Path, result: Any
) -> None:
    Office().certify(result=result).write(tmp_path)
    words = "authentic, but its result is not PASS\n"
    shown, told = verify(tmp_path), verify(tmp_path, "--json")
    assert (shown.exit_code, told.exit_code) == (1, 1)
    assert shown.stderr == told.stderr == words
    assert all(step["passed"] for step in json.loads(told.stdout)["steps"])
    assert json.loads(told.stdout)["result"] == "PASS"  # of the certificate, not of the removal


def test_another_model_exits_1(files: Path) -> None:
    path = files / "models/before.safetensors"
    path.write_bytes(BEFORE)
    result = verify(files, "--model", path)
    assert result.exit_code == 1
    assert result.output.startswith("NOT AUTHENTIC with these files  ")
    assert "the model before the erasure" in result.output


def test_keys_can_be_given_one_by_one(files: Path, tmp_path: Path) -> None:
    keys = files / "keys"
    options = ["--log-key", keys / "log.vkey", "--issuer-key", keys / "issuer.pem"]
    assert run("verify", bundle_in(files), *options).exit_code == 0
    other = tmp_path / "other.vkey"
    other.write_text(log_signer(seed=b"other").verifier.vkey)
    assert verify(files, "--log-key", other).exit_code == 1


def test_the_keyid_can_be_pinned(files: Path) -> None:
    assert verify(files, "--issuer-keyid", "issuer-2026").exit_code == 0
    assert verify(files, "--issuer-keyid", "issuer-2027").exit_code == 1


def test_a_required_witness_that_did_not_sign_exits_1(files: Path) -> None:
    witness = files / "witness.vkey"
    witness.write_text(log_signer("witness.example", b"witness").verifier.vkey)
    assert verify(files, "--witness", witness).exit_code == 1
    assert verify(files, "--witness", witness, "--threshold", 0).exit_code == 0


def test_a_genuine_certificate_without_cosignatures_is_told_from_a_forged_one(
    files: Path,
) -> None:
    policy, key = files / "policy", Ed25519PrivateKey.from_private_bytes(bytes(32))
    vkey = Cosigner("witness.example", key).verifier.vkey
    policy.write_text(f"witness A {vkey}\nquorum A\n")
    unmet = verify(files, "--policy", policy)
    assert unmet.exit_code == 1
    assert unmet.output.startswith("POLICY NOT MET  ")
    assert "does not satisfy your witness policy: 0 of 1 witnesses" in unmet.output
    told = json.loads(verify(files, "--policy", policy, "--json").output)
    assert (told["result"], told["outcome"]) == ("FAIL", "policy-not-met")
    path = bundle_in(files)
    path.write_bytes(path.read_bytes().replace(b'"treeSize":"7"', b'"treeSize":"8"'))
    assert verify(files, "--policy", policy).output.startswith("NOT AUTHENTIC  ")
    forged = json.loads(verify(files, "--policy", policy, "--json").output)
    assert (forged["result"], forged["outcome"]) == ("FAIL", "not-authentic")


def test_verify_imports_no_http_client_and_nothing_of_the_server(files: Path) -> None:
    script = (
        "import sys\n"
        "from lethe.cli.certificate import certificate\n"
        "certificate(sys.argv[1:], standalone_mode=False)\n"
        "heavy = {'httpx2', 'http_message_signatures', 'pydantic', 'sqlalchemy', 'numpy',\n"
        "         'fastapi', 'asyncio', 'ssl'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    arguments = ["verify", str(bundle_in(files)), "--keys", str(files / "keys")]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"
