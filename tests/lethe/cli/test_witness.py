"""`lethe witness init`, and what it refuses."""

from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey

from lethe.cli.witness import witness
from lethe.log.cosigner import Cosigner
from lethe.log.note import parse_vkey
from tests.lethe.certificates.build import log_signer
from tests.lethe.cli.certificates import bundle_in, run_as_main

LOG = log_signer().verifier.vkey

run = partial(run_as_main, command=witness)


def test_init_makes_two_keys_and_knows_the_logs_of_either_spelling(tmp_path: Path) -> None:
    (tmp_path / "log.vkey").write_text(f"{LOG}\n")
    second = log_signer("second.example", b"second").verifier.vkey
    place = tmp_path / "w"
    made = run(
        "init", place, "--name", "w.example", "--log", tmp_path / "log.vkey", "--log", second
    )
    assert made.exit_code == 0, made.output
    keys = [parse_vkey(line) for line in made.stdout.splitlines()]
    assert [(key.name, key.kind) for key in keys] == [
        ("w.example", b"\x04"),
        ("w.example", b"\x06"),
    ]
    assert "witness.vkey (Ed25519) and witness-mldsa.vkey (ML-DSA-44)" in made.stderr
    assert (place / "logs").read_text().splitlines()[1:] == [LOG, second]
    assert (place / "witness.key").stat().st_mode & 0o077 == 0
    again = run("init", place, "--name", "w.example")
    assert again.exit_code == 2
    assert "not empty" in again.output


REFUSED: dict[str, list[str]] = {
    "a name with a space": ["--name", "w example"],
    "a name that is too long": ["--name", "w" * 256],
    "no log": ["--name", "w.example", "--log", "log.vkey"],
    "a witness as a log": ["--name", "w.example", "--log", "w.example+00000000+BA=="],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_makes_nothing(tmp_path: Path, name: str) -> None:
    assert run("init", tmp_path / "w", *REFUSED[name]).exit_code == 2
    assert not (tmp_path / "w").exists()


def test_a_directory_that_is_none_does_not_serve(tmp_path: Path) -> None:
    refused = run("serve", tmp_path)
    assert refused.exit_code == 2
    assert "lethe witness init" in refused.output


def test_a_port_that_is_taken_or_none(tmp_path: Path) -> None:
    run("init", tmp_path / "w", "--name", "w.example")
    refused = run("serve", tmp_path / "w", "--port", "70000")
    assert refused.exit_code == 2
    assert "cannot listen" in refused.output


def test_verify_takes_a_policy_and_no_witness_beside_it(files: Path) -> None:
    policy = files / "witness.policy"
    given = ["verify", bundle_in(files), "--keys", files / "keys", "--policy", policy]
    policy.write_text("quorum none\n")
    assert run_as_main(*given).exit_code == 0
    assert run_as_main(*given, "--threshold", "0").exit_code == 2
    policy.write_text(f"witness A {LOG}\nquorum A\n")
    refused = run_as_main(*given)
    assert refused.exit_code == 2  # a log's key is no witness's
    assert "line 1 of the policy" in refused.output


def test_the_logs_ml_dsa_key_is_a_file_with_one_of_its_name(files: Path) -> None:
    given = ["verify", bundle_in(files), "--keys", files / "keys", "--log-mldsa-key"]
    refused = run_as_main(*given, files / "keys/log.vkey")
    assert refused.exit_code == 2
    assert "is not an ML-DSA-44 key of lethe.example/log" in refused.output
    key = Cosigner("lethe.example/log", MLDSA44PrivateKey.generate()).verifier.vkey
    (files / "log-mldsa.vkey").write_text(f"{key}\n")
    unsigned = run_as_main(*given, files / "log-mldsa.vkey")
    assert unsigned.exit_code == 1
    assert "did not sign the checkpoint once with each of both keys" in unsigned.output


def test_the_logs_ml_dsa_key_beside_the_others_is_required_by_each_command(
    files: Path, tmp_path: Path
) -> None:
    keys = files / "keys"
    second = Cosigner("lethe.example/log", MLDSA44PrivateKey.generate()).verifier.vkey
    verify = ["verify", bundle_in(files), "--keys", keys]
    report = ["report", bundle_in(files), "--keys", keys, "--out", tmp_path / "report.html"]
    declare = ["cyclonedx", bundle_in(files), "--keys", keys, "--out", tmp_path / "out.json"]
    page = ["page", "--keys", keys, "--out", tmp_path / "verify.html"]
    for command in (verify, report, declare, page):
        done = run_as_main(*command)
        assert done.exit_code == 0, done.output
    assert second not in (tmp_path / "verify.html").read_text(encoding="utf-8")
    (tmp_path / "out.json").unlink()
    (keys / "log-mldsa.vkey").write_text(f"{second}\n")
    assert run_as_main(*verify).exit_code == 1
    assert run_as_main(*report).exit_code == 1
    assert "both keys" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert run_as_main(*declare).exit_code == 2
    assert not (tmp_path / "out.json").exists()
    assert run_as_main(*page).exit_code == 0
    assert second in (tmp_path / "verify.html").read_text(encoding="utf-8")
    (keys / "log-mldsa.vkey").write_text("no key\n")
    for command in (verify, report, declare, page):
        assert run_as_main(*command).exit_code == 2
