"""What `lethe certificate show` prints of a file, and that it verified nothing."""

from dataclasses import replace
from pathlib import Path

from lethe.certificates.climb import write_climb
from lethe.certificates.statement import EvidencePart, Subject, build_statement
from lethe.cli.certificate_untested import ELSEWHERE
from lethe.errors import LetheError
from tests.lethe.certificates.build import (
    CERTIFICATE_ID,
    MODEL,
    Office,
    contents,
    digest_of,
)
from tests.lethe.certificates.climbs import SKIPPED, UNDECIDED
from tests.lethe.cli.certificates import bundle_in, run


def test_show_says_what_the_file_says_and_that_nothing_was_verified(files: Path) -> None:
    result = run("show", bundle_in(files))
    assert result.exit_code == 0
    assert result.output.startswith("NOT VERIFIED")
    for text in ("exact", "digits-head/7", "sample, 2 records", "gram-digest passed"):
        assert text in result.output
    assert "1 artifact, 2 feature rows, 1 key\n" in result.output


def test_show_prints_what_an_auditor_compares(tmp_path: Path) -> None:
    predicate = contents()[1]
    told = {"policy": "ab" * 32, "cost.rounds": "12", "cost.flops": "340"}
    evidence = (*predicate.evidence, EvidencePart("climb.scores", "cd" * 32, "x/y"))
    method = replace(predicate.method, parameters={**predicate.method.parameters, **told})
    payload = build_statement(
        [Subject("x", digest_of(MODEL))], replace(predicate, method=method, evidence=evidence)
    )
    path = tmp_path / "x.sigstore.json"
    path.write_bytes(Office().seal(payload))
    lines = run("show", path).output.splitlines()
    for line in (
        f"policy      sha256:{'ab' * 32}",
        f"evidence    evidence/{CERTIFICATE_ID}.json sha256:{predicate.evidence[0].digest}",
        f"scores      climb.scores sha256:{'cd' * 32}",
        f"code        method sha256:{digest_of(b'method code')}",
        f"            lethe-verifier 0.1.0 sha256:{digest_of(b'verifier code')}",
        "cost        flops 340, rounds 12",
    ):
        assert line in lines
    assert run("show", path, "--json").output.encode() == payload + b"\n"


def test_show_as_json_of_something_else_is_a_named_error(tmp_path: Path) -> None:
    path = tmp_path / "x.sigstore.json"
    path.write_bytes(Office().seal(b"{}"))
    assert isinstance(run("show", path, "--json").exception, LetheError)


def test_show_tells_the_climb_then_what_was_tested_then_what_was_not(tmp_path: Path) -> None:
    predicate = contents()[1]
    told = {"asked": "puf-special", **write_climb([UNDECIDED, SKIPPED])}
    method = replace(predicate.method, parameters={**predicate.method.parameters, **told})
    payload = build_statement(
        [Subject("x", digest_of(MODEL))], replace(predicate, method=method)
    )
    path = tmp_path / "x.sigstore.json"
    path.write_bytes(Office().seal(payload))
    labels = [line[:11].strip() for line in run("show", path).output.splitlines()]
    order = [
        "asked",
        "rung 1",
        "rung 2",
        "rung 3",
        "tested",
        "check 1",
        "check 2",
        "not tested",
    ]
    assert [label for label in labels if label in order] == order
    assert "            " + ELSEWHERE in run("show", path).output.splitlines()


def test_show_of_another_file_is_a_named_error(files: Path) -> None:
    result = run("show", files / "keys/issuer.pem")
    assert isinstance(result.exception, LetheError)


def test_a_file_cannot_repaint_the_terminal(tmp_path: Path) -> None:
    name = "head\x1b[2J\nPASS"
    payload = build_statement([Subject(name, digest_of(MODEL))], contents()[1])
    path = tmp_path / "x.sigstore.json"
    path.write_bytes(Office().seal(payload))
    output = run("show", path).output
    assert "\x1b" not in output
    assert "\nPASS" not in output
