"""`lethe certificate recheck`: what it prints and how it exits."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from click.testing import CliRunner, Result

from lethe.errors import LetheError
from tests.workers.judge.empirical_claims import POLICY, noop, simulated
from tests.workers.judge.recheck.cases import MODEL, Case, about, certified
from workers.cli.recheck import recheck as command
from workers.judge.policy.document import to_document

CASE = certified(*about(simulated(1)))


def run(case: Case, directory: Path, *options: object) -> Result:
    files = {"c.json": case.bundle(), "e.json": case.evidence, "s": case.scores, "m": MODEL}
    for name, data in files.items():
        (directory / name).write_bytes(data)
    arguments = [directory / "c.json", "--evidence", directory / "e.json", *options]
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_the_command_prints_each_line_and_exits_with_0(tmp_path: Path) -> None:
    policy = tmp_path / "p.json"
    policy.write_text(json.dumps(to_document(POLICY), indent=2))
    done = run(CASE, tmp_path, "--scores", tmp_path / "s", "--model", tmp_path / "m", "--policy", policy)  # fmt: skip
    assert done.exit_code == 0, done.output
    assert done.output.startswith("AGREES  c.json\n")
    assert "nobody else can try to read" in done.output
    assert "Signatures were not checked" in done.output
    assert "DIFFERS" not in done.output


def test_the_policy_may_be_what_the_service_answers_of_the_model(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    for policy, same in ((POLICY, True), (replace(POLICY, alpha=POLICY.alpha / 2), False)):
        file.write_text(json.dumps({"ref": "m", "config": {"policy": to_document(policy)}}))
        done = run(CASE, tmp_path, "--policy", file, "--json")
        lines = json.loads(done.output)["lines"]
        line = next(line for line in lines if line["name"] == "policy document")
        assert (line["status"] == "same") == same


def test_the_command_says_that_only_digests_were_checked(tmp_path: Path) -> None:
    done = run(CASE, tmp_path)
    assert done.exit_code == 0
    assert done.output.startswith("DIGESTS-ONLY")
    assert "Only digests and proofs could be checked" in done.output


def test_the_command_exits_with_1_if_anything_differs(tmp_path: Path) -> None:
    claim, rows = about(noop(simulated(1)))
    honest = certified(claim, rows).said.checks
    better = tuple(replace(check, passed=True) for check in honest)
    case = certified(claim, rows, checks=better, result="PASS")
    given = ["--scores", tmp_path / "s"]
    done = run(case, tmp_path, *given)
    assert done.exit_code == 1
    assert done.output.startswith("DIFFERS  c.json\n")
    assert "recomputed: FAIL\n" in done.output
    done = run(case, tmp_path, *given, "--json")
    assert done.exit_code == 1
    found = json.loads(done.output)
    line = next(line for line in found["lines"] if line["name"] == "verdict")
    assert (line["status"], line["certified"], line["recomputed"]) == (
        "DIFFERS",
        "PASS",
        "FAIL",
    )


def test_another_scores_file_is_no_difference_and_exits_with_2(tmp_path: Path) -> None:
    other = tmp_path / "other-scores"
    other.write_bytes(CASE.scores + b" ")
    done = run(CASE, tmp_path, "--scores", tmp_path / "s", "--scores", other)
    assert done.exit_code == 2
    assert "DIFFERS" not in done.output
    told = " ".join(done.output.replace("│", " ").split())
    named = f"scores {sha256(CASE.scores).hexdigest()}"
    assert f"other-scores: this file is not named by the certificate; it names {named}" in told


def test_another_model_file_is_named_by_both_digests(tmp_path: Path) -> None:
    other = tmp_path / "other-model"
    other.write_bytes(MODEL + b"x")
    done = run(CASE, tmp_path, "--model", other)
    assert done.exit_code == 1
    file, model = sha256(MODEL + b"x").hexdigest(), sha256(MODEL).hexdigest()
    assert f"the file's SHA-256 is {file}; this certificate is about {model}\n" in done.output
    assert f"not recomputed: the file's SHA-256 is {file}" not in done.output


def test_a_file_that_is_no_certificate_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("{}")
    done = CliRunner().invoke(command, [str(path), "--evidence", str(path)])
    assert isinstance(done.exception, LetheError)  # `lethe` prints it and exits with 2
    assert str(done.exception).startswith("x is not a certificate: ")


def test_the_help_says_that_every_recheck_needs_the_extra() -> None:
    done = CliRunner().invoke(command, ["--help"])
    assert "files cannot be used. It needs the extra recheck" in " ".join(done.output.split())


def test_a_policy_that_is_none_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("{}")
    done = run(CASE, tmp_path, "--policy", tmp_path / "p")
    assert isinstance(done.exception, LetheError)
    assert "give a policy: `lethe policy default` writes one" in str(done.exception)
