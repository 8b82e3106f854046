"""Each rung that is told has a line, and each scores file is of one rung: in their order."""

from dataclasses import replace
from hashlib import sha256

from lethe.certificates.climb import RungPart, spelled, write_climb
from lethe.certificates.evidence import scores_part
from lethe.certificates.statement import CheckPart
from tests.workers.judge.empirical_claims import simulated
from tests.workers.judge.recheck.cases import (
    UNMEMORABLE,
    Case,
    about,
    climbed,
    differing,
    parts,
)
from workers.judge.recheck.climb import PASSED
from workers.judge.recheck.lines import Line
from workers.judge.recheck.run import recheck
from workers.judge.recheck.rungs import NO_SCORES, NO_VERDICT, NOT_SAMPLED
from workers.judge.samples.empirical import VERIFIER
from workers.judge.scores.file import decode_scores, encode_scores

CLAIM, ROWS = about(UNMEMORABLE)
FILES = [encode_scores(replace(CLAIM, seed=bytes([n]) * 32), ROWS) for n in (1, 2)]
SKIPPED = RungPart("hf-kcu", "NONE", "skipped, over the budget", ())
TRAINED = CheckPart(1, "re-execution", "of another file", None, "equal", False)


def rung_of(method: str, file: bytes) -> RungPart:
    report = VERIFIER.verify(decode_scores(file)[0])
    assert report.result == "INCONCLUSIVE"
    return RungPart(method, "INCONCLUSIVE", None, parts(report))


RUNGS = [rung_of("puf-special", FILES[0]), rung_of("hf-kcu", FILES[1])]


def case_of(told: dict[str, str], *files: bytes) -> Case:
    """Return the certificate of a retraining that tells this climb, and names these scores."""
    case = climbed(CLAIM, ROWS, **told)
    named = [scores_part(sha256(file).hexdigest(), certified=False) for file in files]
    return replace(case, said=replace(case.said, evidence=(case.said.evidence[0], *named)))


def lines(told: dict[str, str], *files: bytes, given: list[bytes] | None = None) -> list[Line]:
    case = case_of(told, *files)
    found = recheck(case.said, case.given(scores=list(files) if given is None else given))
    assert all(name.startswith("rung before") for name in differing(found))
    return [line for line in found.lines if line.name == "rung before"]


def status(found: list[Line]) -> list[str]:
    return [line.status for line in found]


def test_the_nth_scores_are_of_the_nth_rung_that_was_judged_by_samples() -> None:
    retrain = RungPart("retrain", "FAIL", None, (TRAINED,))
    told = [RUNGS[0], SKIPPED, RUNGS[1], retrain]
    # They are found by their digest, in whatever order they are given.
    found = lines(write_climb(told), *FILES, given=FILES[::-1])
    assert [line.certified for line in found] == [spelled(rung) for rung in told]
    assert status(found) == ["same", "not recomputed", "same", "not recomputed"]
    assert [line.reason for line in found] == ["", NO_VERDICT, "", NOT_SAMPLED]
    assert status(lines(write_climb(RUNGS[::-1]), *FILES)) == ["DIFFERS", "DIFFERS"]


def test_scores_of_the_first_rung_say_nothing_of_a_second() -> None:
    twice = [RUNGS[0], replace(RUNGS[0], method="hf-kcu")]
    first, second = lines(write_climb(twice), FILES[0])
    assert (first.status, second.status) == ("same", "not recomputed")
    assert second.reason == NO_SCORES
    # Nor do they if they are named again.
    first, second = lines(write_climb(twice), FILES[0], FILES[0])
    assert (first.status, second.status) == ("same", "DIFFERS")


def test_an_invented_rung_is_not_passed_over() -> None:
    fake = RungPart("hf-kcu", "FAIL", None, (CheckPart(1, "yeom:auc", "1", None, "x", False),))
    found = lines(write_climb([RUNGS[0], fake]), FILES[0])
    assert status(found) == ["same", "not recomputed"]
    # With the checks of a verdict by samples it takes the place of the one that was judged.
    assert status(lines(write_climb(RUNGS[::-1]), FILES[0])) == ["DIFFERS", "not recomputed"]


def test_a_rung_without_scores_has_a_line() -> None:
    (line,) = lines(write_climb(RUNGS[:1]))
    assert (line.status, line.certified) == ("not recomputed", spelled(RUNGS[0]))
    assert line.reason == NO_SCORES


def test_scores_that_were_not_given_are_told_of_their_own_rung() -> None:
    first, second = lines(write_climb(RUNGS), *FILES, given=FILES[1:])
    assert (first.status, second.status) == ("not recomputed", "same")
    assert sha256(FILES[0]).hexdigest() in first.reason


def test_a_verdict_that_is_told_as_none_shows() -> None:
    said = spelled(RUNGS[0]).partition(": ")[2]
    rung = f'{{"checks":[],"method":"puf-special","reason":"{said}","result":"NONE"}}'
    told = {"climb.rungs": f'{{"rungs":[{rung}]}}'}
    for files in (FILES[:1], []):
        (line,) = lines(told, *files)
        assert line.status == "DIFFERS"
        assert "must not tell a verdict" in line.recomputed


def test_scores_of_no_rung_show_unless_a_model_passed_and_is_told_as_not_judged() -> None:
    withheld = lines(write_climb(RUNGS[:1]), *FILES)
    assert status(withheld) == ["same", "DIFFERS"]
    assert status(lines(write_climb([SKIPPED]), FILES[0])) == ["not recomputed", "DIFFERS"]
    claim, rows = about(simulated(1))
    case = climbed(claim, rows, **write_climb([replace(SKIPPED, reason="not certified")]))
    found = recheck(case.said, case.given())
    assert differing(found) == set()
    assert [line.reason for line in found.lines if line.name == "rung before"] == [
        NO_VERDICT,
        PASSED,
    ]
    case = climbed(claim, rows, **write_climb([RungPart("retrain", "FAIL", None, (TRAINED,))]))
    assert differing(recheck(case.said, case.given())) == {"rung before"}


def test_scores_of_no_rung_that_another_version_judged_are_not_refuted() -> None:
    file = encode_scores(CLAIM, ROWS, "4")
    found = lines(write_climb([SKIPPED]), file)
    assert status(found) == ["not recomputed"] * 2
    assert "install the one that issued" in found[1].reason


def test_what_was_certified_as_asked_for_has_no_line_of_a_rung() -> None:
    case = climbed(CLAIM, ROWS)
    parameters = {"policy": CLAIM.policy_digest}
    method = replace(case.said.method, parameters=parameters)
    said = replace(case.said, method=method, evidence=case.said.evidence[:1])
    assert not [one for one in recheck(said, case.given(scores=[])).lines if "rung" in one.name]
