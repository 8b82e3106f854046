"""What `lethe certificate show` prints of a file, and that it verified nothing."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from lethe import canonical
from lethe.catalogue import GuaranteeClass
from lethe.certificates.errors import ShapeError
from lethe.certificates.statement import (
    AttemptPart,
    CheckPart,
    EvidencePart,
    Predicate,
    Scope,
    Subject,
    build_statement,
    write_escalation,
)
from lethe.cli.text.certificate import escalation_lines
from lethe.errors import LetheError
from lethe.words import certificate as words
from lethe.words.certificate import not_run
from lethe.words.texts import texts
from tests.lethe.certificates.build import (
    CERTIFICATE_ID,
    MODEL,
    Office,
    contents,
    digest_of,
)
from tests.lethe.certificates.escalations import (
    ATTACK,
    NOT_RUN,
    PURGE,
    SAMPLES,
    SKIPPED,
    UNDECIDED,
)
from tests.lethe.cli.certificates import bundle_in, run

ENGLISH = texts("en")
ELSEWHERE, HELD = ENGLISH.of("untested", "elsewhere"), ENGLISH.of("untested", "held")


def in_words(predicate: Predicate) -> str:
    return words.in_words(predicate, ENGLISH)


def untested(predicate: Predicate) -> Iterator[str]:
    return words.untested(predicate, ENGLISH)


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
    evidence = (*predicate.evidence, EvidencePart("escalation.scores", "cd" * 32, "x/y"))
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
        f"scores      escalation.scores sha256:{'cd' * 32}",
        f"code        method sha256:{digest_of(b'method code')}",
        f"            lethe-verifier 0.1.0 sha256:{digest_of(b'verifier code')}",
        "cost        flops 340, rounds 12",
    ):
        assert line in lines
    assert run("show", path, "--json").output.encode() == payload + b"\n"


def test_show_as_json_does_not_act_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC 8785 leaves U+009B and bidirectional characters as they are."""
    predicate = contents()[1]
    hidden = replace(predicate.guarantee, statement="\x9b8m\x7f\u202e\U000e0001 δ")
    payload = build_statement(
        [Subject("x", digest_of(MODEL))], replace(predicate, guarantee=hidden)
    )
    path = tmp_path / "x.sigstore.json"
    path.write_bytes(Office().seal(payload))
    assert run("show", path, "--json").stdout_bytes == payload + b"\n"
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    shown = run("show", path, "--json").output.removesuffix("\n")
    assert shown.isprintable()
    assert "\\u009b8m\\u007f\\u202e\\udb40\\udc01 δ" in shown
    assert canonical.encode(json.loads(shown)) == payload


def test_show_as_json_of_something_else_is_a_named_error(tmp_path: Path) -> None:
    path = tmp_path / "x.sigstore.json"
    path.write_bytes(Office().seal(b"{}"))
    assert isinstance(run("show", path, "--json").exception, LetheError)


def test_show_tells_the_escalation_then_what_was_tested_then_what_was_not(
    tmp_path: Path,
) -> None:
    predicate = contents()[1]
    told = {"asked": "puf-special", **write_escalation([UNDECIDED, SKIPPED])}
    method = replace(predicate.method, parameters={**predicate.method.parameters, **told})
    payload = build_statement(
        [Subject("x", digest_of(MODEL))], replace(predicate, method=method)
    )
    path = tmp_path / "x.sigstore.json"
    path.write_bytes(Office().seal(payload))
    labels = [line[:11].strip() for line in run("show", path).output.splitlines()]
    order = [
        "asked",
        "attempt 1",
        "no attempt",
        "attempt 2",
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
    assert str(result.exception).startswith("issuer.pem is not a certificate: ")


def test_a_file_cannot_repaint_the_terminal(tmp_path: Path) -> None:
    name = "head\x1b[2J\nPASS"
    payload = build_statement([Subject(name, digest_of(MODEL))], contents()[1])
    path = tmp_path / "x.sigstore.json"
    path.write_bytes(Office().seal(payload))
    output = run("show", path).output
    assert "\x1b" not in output
    assert "\nPASS" not in output


# --- in words: of each class, and never more than was checked ---------------------------
BEGINS = "2 records were erased on 2026-11-21 from model digits-head. "
SAYS: dict[str, str] = {
    "exact": "exact solution, correctly rounded, for the retained records.",
    "numerically-exact": "up to a proven bound on its numerical error.",
    "certified-approximate": "within a proven distance of the solution",
    "exact-retrained": "The model was trained again without them, and the training was repeated "
    "with the same result. All 2 checks",
    "retrained": "came as near as the registered tolerance. Two runs of it differ",
    "empirical-approximate": "This is evidence, not proof.",
    "none": "Nothing is guaranteed",
}


def said(class_: Any = "exact", parameters: Any = (), **changes: Any) -> Predicate:
    predicate = contents()[1]
    guarantee = replace(predicate.guarantee, class_=class_)
    method = replace(predicate.method, parameters=dict(parameters))
    return replace(predicate, guarantee=guarantee, method=method, **changes)


@pytest.mark.parametrize("class_", get_args(GuaranteeClass))
def test_each_class_has_its_words(class_: str) -> None:
    words = in_words(said(class_))
    assert words.startswith(BEGINS)
    assert SAYS[class_] in words
    assert words.endswith(" All 2 checks passed.")


@pytest.mark.parametrize(
    ("level", "records", "begins"),
    [
        ("sample", 1, "1 record was erased"),
        ("client", 302, "302 records of one client were erased"),
        ("subject", 1, "1 record of one person was erased"),
    ],
)
def test_it_says_whose_and_how_many(level: Any, records: int, begins: str) -> None:
    assert in_words(said(scope=Scope(level, records, b"r" * 32))).startswith(begins)


@pytest.mark.parametrize("data", ["statistics", "masked"])
@pytest.mark.parametrize("class_", ["exact", "numerically-exact", "certified-approximate"])
def test_of_rows_elsewhere_it_says_that_nobody_saw_them(class_: str, data: str) -> None:
    words = in_words(said(class_, {"data": data}))
    assert "the sums that clients sent" in words
    assert "It did not see the records themselves." in words
    assert "did not see" not in in_words(said(class_, {"data": "rows"}))


def test_missing_answers_are_told_where_there_were_some() -> None:
    assert "missing in both: 3." in in_words(said("exact-retrained", {"retrain.missing": "3"}))
    assert "missing" not in in_words(said("exact-retrained", {"retrain.missing": "0"}))


def test_what_did_not_pass_is_called_neither_erased_nor_trained() -> None:
    checks = contents()[1].checks
    failed = (replace(checks[0], passed=False), checks[1])
    assert in_words(said("exact-retrained", checks=failed, result="FAIL")) == (
        "It is not shown that 2 records left model digits-head: the result is FAIL, and 1 of 2 "
        "checks did not pass."
    )


# --- the escalation: each attempt on lines of its own, and why ----------------------------------
def escalated(**parameters: str) -> Predicate:
    predicate = contents()[1]
    return replace(
        predicate, method=replace(predicate.method, id="retrain", parameters=parameters)
    )


def lines(*attempts: AttemptPart) -> list[tuple[str, str]]:
    return list(escalation_lines(escalated(**write_escalation(attempts))))


def test_each_attempt_says_what_was_found_on_what_and_what_was_criterion() -> None:
    assert lines(UNDECIDED, SKIPPED) == [
        (
            "attempt 1",
            "puf-special: INCONCLUSIVE, so it was not certified: there were too few rows to "
            "tell whether it had erased enough",
        ),
        ("", "  not shown  samples"),
        ("", "    measured   rows tested"),
        ("", "    value      45 pairs, testing 18.4% of 245 forget rows"),
        ("", "               914 retained"),
        ("", "               power: AUC 0.0000"),
        ("", "    threshold  at least 310 pairs; power 0.8"),
        (
            "",
            "               that is: there must be enough erased rows, each matched with an unseen "
            "row, to detect a trace of the stated size",
        ),
        ("", "  not run  attacks: the samples do not allow it"),
        ("", "  passed  purge"),
        ("no attempt", "hf-kcu: skipped, over the budget"),
        ("attempt 2", "retrain: PASS, the certified one (2 checks)"),
    ]


def test_a_refuted_attempt_says_by_which_check_on_how_many_rows() -> None:
    enough = replace(SAMPLES, passed=True)
    silos = CheckPart(
        4, "silos-answered", "silos", f"1 of 1 silos; keys: 0 {'ab' * 32}", None, "all", True
    )
    told = lines(AttemptPart(1, "puf", "FAIL", None, (PURGE, enough, ATTACK, silos)))
    assert told[0][1] == "puf: FAIL, so it was not certified: a check refuted it"
    texts = [text for _, text in told]
    assert "    value      0.7012 (45 forget, 45 unseen rows), interval 0.61 to 0.79" in texts
    assert "    threshold  between 0.4 and 0.6" in texts
    assert any("about as good as guessing" in text for text in texts)
    assert f"  tested on  {SAMPLES.value}" in texts
    assert f"  signed  {silos.value}" in texts
    assert "  passed  purge, samples, silos-answered" in texts


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (AttemptPart(1, "puf", "FAIL", None, (ATTACK,)), "a check refuted it"),
        (UNDECIDED, "there were too few rows to tell"),
        (replace(UNDECIDED, checks=(PURGE, NOT_RUN)), "the checks could not tell"),
        (
            replace(SKIPPED, number=1, reason="not judged by itself"),
            "hf-kcu: not judged by itself",
        ),
        (replace(SKIPPED, reason="NoSafeStep"), "hf-kcu: NoSafeStep"),
    ],
)
def test_an_attempt_says_why_it_gave_way(attempt: AttemptPart, words: str) -> None:
    (first, text), *_, last = lines(attempt)
    numbers = (
        ("no attempt", "attempt 1") if attempt.number is None else ("attempt 1", "attempt 2")
    )
    assert (first, last[0]) == numbers
    assert words in text


def test_an_attempt_of_the_ladder_is_named_with_its_settings() -> None:
    told = escalated(**write_escalation([SKIPPED]), method="puf-special(guard.rise=2)")
    assert list(escalation_lines(told))[-1][1].startswith("puf-special(guard.rise=2): PASS")


def test_what_was_criterion_and_certified_escalated_nothing() -> None:
    assert list(escalation_lines(escalated())) == []


def test_an_escalation_of_another_form_is_not_shown() -> None:
    told = {
        name: value.replace("NONE", "PASS")
        for name, value in write_escalation([SKIPPED]).items()
    }
    with pytest.raises(ShapeError):
        list(escalation_lines(escalated(**told)))


# --- not tested: said of each class, and never of what was tested -----------------------
AUC = CheckPart(
    1, "yeom:auc", "AUC", "0.51", ("0.45", "0.57"), "between 0.4 and 0.6", passed=True
)
FORGET = CheckPart(2, "forget-accuracy", "accuracy", "0.8", None, None, passed=True)
DISTANCES = CheckPart(
    3, "distances", "distances", "not measured: no model", None, None, passed=True
)


def claiming(class_: Any, *checks: CheckPart, **parameters: str) -> Predicate:
    predicate = contents()[1]
    return replace(
        predicate,
        guarantee=replace(predicate.guarantee, class_=class_),
        method=replace(predicate.method, parameters=parameters),
        checks=checks or predicate.checks,
    )


def test_a_verdict_by_samples_says_which_attacks_ran_and_what_was_only_measured() -> None:
    found = list(untested(claiming("empirical-approximate", AUC, FORGET, DISTANCES)))
    assert found == [
        "distances: no model",
        "forget-accuracy: measured and reported, with no limit to pass",
        "attacks other than yeom: a stronger one may find more",
        "erased rows without a partner: the check samples says which share was tested",
        "any single record: the tests are on averages and on a tail",
        "the method over many erasures: the certificate cites no audit of it",
        ELSEWHERE,
    ]


def test_an_audit_that_is_cited_is_not_called_missing_and_one_that_is_says_why() -> None:
    cited = claiming("empirical-approximate", AUC, **{"audit": "ab" * 32})
    assert not any("many erasures" in line for line in untested(cited))
    missing = claiming("empirical-approximate", AUC, **{"audit.missing": "it is not stored"})
    assert "the method over many erasures: it is not stored" in list(untested(missing))


@pytest.mark.parametrize(
    ("class_", "instead"),
    [
        ("exact", "were proven"),
        ("numerically-exact", "were proven"),
        ("certified-approximate", "were proven"),
        ("exact-retrained", "the training was repeated"),
        ("retrained", "the training was repeated"),
    ],
)
def test_no_attack_was_run_where_something_stronger_was(class_: str, instead: str) -> None:
    found = list(untested(claiming(class_)))
    assert any("none was run" in line and instead in line for line in found)
    assert found[-1] == ELSEWHERE
    assert HELD not in found
    assert HELD in list(untested(claiming(class_, data="masked")))


def test_answers_that_were_missing_are_told() -> None:
    for missing, told in (("3", True), ("0", False)):
        found = untested(claiming("exact-retrained", **{"retrain.missing": missing}))
        assert any("missing" in line for line in found) == told


def test_a_check_that_was_not_run_says_why() -> None:
    for value, why in (("not run: too few", "too few"), ("0.5", None)):
        assert (
            not_run(CheckPart(1, "attacks", "attacks", value, None, "x", passed=False)) == why
        )
