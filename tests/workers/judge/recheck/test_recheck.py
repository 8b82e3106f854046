"""A certified verdict is recomputed from files, and every planted change shows."""

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from lethe.certificates.evidence import scores_part
from lethe.certificates.statement import (
    CheckPart,
    Guarantee,
    read_escalation,
    write_escalation,
)
from tests.workers.judge.empirical_claims import POLICY, noop, simulated
from tests.workers.judge.recheck.cases import (
    UNMEMORABLE,
    Case,
    about,
    certified,
    differing,
    escalated,
    named,
    parts,
    without_scores,
)
from workers.arrays import encode_tensors
from workers.judge.policy.document import digest
from workers.judge.recheck.lines import MEANING
from workers.judge.recheck.run import recheck
from workers.judge.samples.empirical import VERIFIER
from workers.judge.samples.empirical_claim import EmpiricalClaim
from workers.judge.scores.file import decode_scores, encode_scores
from workers.judge.silos import SilosClaim

CLAIM, ROWS = about(simulated(1))
CASE = certified(CLAIM, ROWS)
VERDICTS = {"PASS": simulated(1), "FAIL": noop(simulated(1)), "INCONCLUSIVE": UNMEMORABLE}
UNSEEN = {"4 purge"}  # what nobody else can recompute, even with all files


@pytest.mark.parametrize("result", VERDICTS)
def test_every_verdict_is_reached_again(result: str) -> None:
    case = certified(*about(VERDICTS[result]))
    found = recheck(case.said, case.given(policy=digest(POLICY)))
    assert found.result == "AGREES"
    assert named(found, "verdict").recomputed == result
    again = {line.name for line in found.lines if line.status == "same"}
    checks = {f"{check.number} {check.name}" for check in case.said.checks}
    before = next(name for name in checks if name.endswith("model-before"))
    assert checks - again == UNSEEN | {before}
    for name in UNSEEN | {before}:
        assert named(found, name).reason
    for name in ("removal proof", "policy document", "model file", "scores: rows"):
        assert named(found, name).status == "same"


def test_without_the_model_its_check_is_not_recomputed() -> None:
    found = recheck(CASE.said, CASE.given(model=None))
    assert found.result == "AGREES"
    assert "--model" in named(found, "1 model-file").reason


def test_without_scores_there_are_only_digests() -> None:
    found = recheck(CASE.said, CASE.given(scores=[]))
    assert found.result == "DIGESTS-ONLY"
    assert "--scores" in named(found, "2 policy").reason
    assert not any(line.status == "same" and line.name[0].isdigit() for line in found.lines)


def test_a_certificate_that_names_no_scores_is_told_of() -> None:
    said = replace(CASE.said, evidence=CASE.said.evidence[:1])
    found = recheck(said, CASE.given(scores=[]))
    assert found.result == "DIGESTS-ONLY"
    assert "names none" in named(found, "2 policy").reason


ALL = SilosClaim(2, 2, {}, {"0": "ab" * 32, "1": "cd" * 32})
SOME = SilosClaim(2, 1, {"no answer in time": 1}, {"0": "ab" * 32})


@pytest.mark.parametrize(("silos", "result"), [(ALL, "PASS"), (SOME, "INCONCLUSIVE")])
def test_a_verdict_over_silos_is_reached_again(silos: SilosClaim, result: str) -> None:
    case = certified(replace(CLAIM, silos=silos), ROWS)
    found = recheck(case.said, case.given())
    assert (found.result, named(found, "verdict").recomputed) == ("AGREES", result)
    last = case.said.checks[-1]
    name = f"{last.number} silos-answered"
    assert "signed answers were destroyed" in named(found, name).reason
    alone = recheck(case.said, case.given(scores=[]))
    line = named(alone, name)
    assert (line.status, line.certified) == ("not recomputed", last.value)
    assert "rests on the service" in line.reason
    escalating = escalated(replace(CLAIM, silos=SOME), ROWS)
    again = recheck(escalating.said, escalating.given())
    assert named(again, "attempt 1").status == "same"


def test_a_silent_silo_that_is_certified_as_if_it_had_answered_shows() -> None:
    file = encode_scores(replace(CLAIM, silos=SOME), ROWS)
    case = reissued(file, certified(replace(CLAIM, silos=ALL), ROWS))
    assert {"verdict", "5 samples"} <= differing(recheck(case.said, case.given()))


# --- planted in a file: its digest is another --------------------------------------------------


def one_score(claim: EmpiricalClaim) -> EmpiricalClaim:
    after = claim.forget_after.copy()
    after[17, 2] = np.nextafter(after[17, 2], np.inf)
    return replace(claim, forget_after=after)


def one_label(claim: EmpiricalClaim) -> EmpiricalClaim:
    labels = claim.forget_labels.copy()
    right = np.flatnonzero(claim.forget_after.argmax(axis=1) == labels)[0]
    labels[right] = (labels[right] + 1) % 5
    return replace(claim, forget_labels=labels)


def another_seed(claim: EmpiricalClaim) -> EmpiricalClaim:
    return replace(claim, seed=claim.seed[::-1])


def another_policy(claim: EmpiricalClaim) -> EmpiricalClaim:
    lax = replace(POLICY, tau=0.2)
    return replace(claim, policy=lax, policy_digest=digest(lax))


def louder(claim: EmpiricalClaim) -> EmpiricalClaim:
    return replace(claim, forget_after=claim.forget_before)


PLANTED = {
    "one score, in its last bit": one_score,
    "a row's label": one_label,
    "the seed": another_seed,
    "the policy": another_policy,
    "all scores after": louder,
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_in_the_scores_is_found_by_their_digest(name: str) -> None:
    planted = encode_scores(PLANTED[name](CLAIM), ROWS)
    found = recheck(CASE.said, CASE.given(scores=[planted]))
    assert found.result == "DIFFERS"
    assert differing(found) == {"scores file"}


def test_scores_of_another_certificate_are_found() -> None:
    other = certified(*about(simulated(5)))
    assert differing(recheck(CASE.said, CASE.given(scores=[other.scores]))) == {"scores file"}
    # Together with the right ones they are one file too many.
    both = recheck(CASE.said, CASE.given(scores=[CASE.scores, other.scores]))
    assert differing(both) == {"scores file"}


def test_an_edited_evidence_file_is_found() -> None:
    document = json.loads(CASE.evidence)
    document["report"]["checks"][4]["value"] = "9999 pairs"
    edited = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    found = recheck(CASE.said, CASE.given(evidence=edited))
    assert differing(found) == {"evidence file", "removal proof"}


def test_another_model_or_policy_is_found() -> None:
    zeros = encode_tensors({"weight": np.zeros((2, 3), dtype=np.float32)}, {})
    found = recheck(CASE.said, CASE.given(model=zeros))
    assert differing(found) == {"model file", "1 model-file", "verdict"}
    found = recheck(CASE.said, CASE.given(policy="0" * 64))
    assert differing(found) == {"policy document"}


# --- planted by the issuer: all digests fit ------------------------------------------------------


def reissued(planted: bytes, case: Case = CASE) -> Case:
    """Return the certificate with other scores, named by their own digest."""
    listed = scores_part(sha256(planted).hexdigest(), certified=True)
    said = replace(case.said, evidence=(case.said.evidence[0], listed))
    return replace(case, said=said, scores=planted)


@pytest.mark.parametrize("name", list(PLANTED)[1:])
def test_what_an_issuer_plants_in_the_scores_shows_in_the_checks(name: str) -> None:
    case = reissued(encode_scores(PLANTED[name](CLAIM), ROWS))
    found = recheck(case.said, case.given())
    assert found.result == "DIFFERS"
    assert any(line[0].isdigit() for line in differing(found))


def test_a_better_value_that_an_issuer_certifies_shows() -> None:
    claim, rows = about(noop(simulated(1)))
    honest = parts(VERIFIER.verify(decode_scores(encode_scores(claim, rows))[0]))
    better = tuple(replace(check, passed=True) for check in honest)
    case = certified(claim, rows, checks=better, result="PASS")
    found = recheck(case.said, case.given())
    assert "verdict" in differing(found)
    assert named(found, "verdict").recomputed == "FAIL"
    edited = (*CASE.said.checks[:5], replace(CASE.said.checks[5], value="0.9"), *CASE.said.checks[6:])  # fmt: skip
    case = certified(CLAIM, ROWS, checks=edited)
    assert differing(recheck(case.said, case.given())) == {f"6 {edited[5].name}"}


@pytest.mark.parametrize("name", ["4 purge", "1 model-file"])
def test_also_what_is_not_computed_again_must_be_as_the_file_says(name: str) -> None:
    place = int(name[0]) - 1
    other = replace(CASE.said.checks[place], value="nothing to see")
    checks = (*CASE.said.checks[:place], other, *CASE.said.checks[place + 1 :])
    case = certified(CLAIM, ROWS, checks=checks)
    assert differing(recheck(case.said, case.given(model=None))) == {name}


def test_a_check_under_the_name_of_another_shows() -> None:
    """Also of what is not computed again, and of an attempt before."""
    first, second = CASE.said.checks[3:5]
    swapped = (replace(first, name=second.name), replace(second, name=first.name))
    checks = (*CASE.said.checks[:3], *swapped, *CASE.said.checks[5:])
    case = certified(CLAIM, ROWS, checks=checks)
    assert differing(recheck(case.said, case.given())) == {
        f"4 {second.name}",
        f"5 {first.name}",
    }
    honest = escalated(*about(UNMEMORABLE))
    (attempt,) = read_escalation(honest.said.method.parameters)
    place = next(at for at, one in enumerate(attempt.checks) if one.passed)
    other = replace(attempt.checks[place], name="attack-lira")
    told = (*attempt.checks[:place], other, *attempt.checks[place + 1 :])
    parameters = dict(honest.said.method.parameters)
    parameters |= write_escalation([replace(attempt, checks=told)])
    said = replace(honest.said, method=replace(honest.said.method, parameters=parameters))
    assert differing(recheck(said, honest.given())) == {"attempt 1: attack-lira"}


def test_a_check_left_out_or_added_shows() -> None:
    case = certified(CLAIM, ROWS, checks=CASE.said.checks[:-1])
    assert len(differing(recheck(case.said, case.given()))) == 1
    more = CheckPart(len(CASE.said.checks) + 1, "more", "value", "fine", None, None, True)
    case = certified(CLAIM, ROWS, checks=(*CASE.said.checks, more))
    assert differing(recheck(case.said, case.given())) == {f"{more.number} more"}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"published_digest": "0" * 64, "model": "0" * 64}, "scores: model after"),
        ({"model_before": ("0" * 64, "0" * 64)}, "scores: model before"),
        ({"policy_digest": "0" * 64}, "scores: policy"),
        (
            {"retained_set": replace(CLAIM.retained_set, after_count=4)},
            "scores: retained sets",
        ),
        (
            {"retained_set": replace(CLAIM.retained_set, erased=CLAIM.retained_set.erased[1:])},
            "scores: erased records",
        ),
    ],
)
def test_scores_about_something_else_show(changes: dict[str, Any], line: str) -> None:
    case = reissued(encode_scores(replace(CLAIM, **changes), ROWS))
    assert line in differing(recheck(case.said, case.given()))


def test_rows_that_no_version_committed_to_show() -> None:
    other = sha256(b"a row nobody sent").digest()
    rows = replace(ROWS, stored=[*ROWS.stored, other])
    case = reissued(encode_scores(CLAIM, rows))
    found = differing(recheck(case.said, case.given()))
    assert {name.partition(" ")[2] for name in found} >= {"rows-before", "rows-after"}
    twice = replace(ROWS, retained=[*ROWS.retained[1:], ROWS.retained[1]])
    case = reissued(encode_scores(CLAIM, twice))
    assert differing(recheck(case.said, case.given())) == {"scores: rows"}


def test_bytes_that_are_no_scores_show() -> None:
    case = reissued(b"no scores")
    found = recheck(case.said, case.given())
    assert (found.result, differing(found)) == ("DIFFERS", {"scores"})


def test_another_release_recomputes_nothing() -> None:
    said = replace(CASE.said, verifier=replace(CASE.said.verifier, version="9"))
    found = recheck(said, CASE.given(model=None))
    assert "install the one that issued" in named(found, "verifier").reason
    assert not any(line.status == "same" and line.name[0].isdigit() for line in found.lines)


# --- certificates of other classes ------------------------------------------------------------------


def test_a_check_that_names_a_foreign_digest_shows() -> None:
    case = escalated(*about(UNMEMORABLE))
    for place, name in ((0, "1 model-file"), (2, "3 re-execution")):
        other = replace(case.said.checks[place], value=f"3 of 3 rounds, sha256 {'0' * 64}")
        checks = (*case.said.checks[:place], other, *case.said.checks[place + 1 :])
        found = recheck(replace(case.said, checks=checks), case.given())
        assert name in differing(found)


# --- planted around the verdict -----------------------------------------------------------------


@pytest.mark.parametrize("statistics", [{}, {"before": "0" * 64, "after": "1" * 64}])
def test_rows_of_another_version_than_the_evidence_names_show(
    statistics: dict[str, str],
) -> None:
    case = certified(CLAIM, ROWS, statistics=statistics)
    found = recheck(case.said, case.given())
    assert differing(found) == {"scores: rows before", "scores: rows after"}
    assert named(found, "scores: rows before").recomputed == ROWS.before
    honest = recheck(CASE.said, CASE.given())
    assert named(honest, "scores: rows before").certified == ROWS.before
    judgement = named(honest, "scores: judgement")
    assert judgement.certified == f"sha256 {sha256(CLAIM.seed).hexdigest()}"
    assert "must be number 1 of its model" in judgement.reason
    assert named(honest, "scores: rows after").certified == ROWS.after


def test_a_digest_that_is_missing_is_not_what_the_scores_call_so() -> None:
    told = ("none in the evidence", ROWS.before)
    case = certified(replace(CLAIM, rows_before=told), ROWS, statistics={})
    assert "scores: rows before" in differing(recheck(case.said, case.given()))


def test_withheld_scores_of_an_attempt_are_told_of() -> None:
    case = escalated(*about(UNMEMORABLE))
    found = recheck(case.said, case.given(scores=[]))
    assert found.result == "DIGESTS-ONLY"
    assert named(found, "attempt 1").status == "not recomputed"
    other = scores_part("cd" * 32, certified=False)
    said = replace(CASE.said, evidence=(*CASE.said.evidence, other))
    found = recheck(said, CASE.given())
    assert found.result == "AGREES"
    assert "does not cover earlier attempts" in MEANING[found.result]
    assert other.digest in named(found, "earlier attempts").reason


def test_two_scores_of_one_verdict_show() -> None:
    first, own = CASE.said.evidence
    said = replace(CASE.said, evidence=(first, scores_part("ab" * 32, certified=True), own))
    for scores in ([CASE.scores], []):
        assert differing(recheck(said, CASE.given(scores=scores))) == {"scores"}


def test_a_class_that_the_verifier_does_not_judge_shows() -> None:
    other = Guarantee("exact", "Bit for bit.", {})
    case = certified(CLAIM, ROWS, guarantee=other)
    assert "guarantee class" in differing(recheck(case.said, case.given()))
    renamed = replace(CASE.said.verifier, id="exact")
    case = certified(CLAIM, ROWS, guarantee=other, verifier=renamed)
    assert "verifier of scores" in differing(recheck(case.said, case.given()))
    found = recheck(case.said, case.given(scores=[]))
    assert differing(found) == {"class with scores"}


def test_erased_rows_without_scores_are_counted_and_nothing_is_agreed_on() -> None:
    """The service leaves out the 150 rows that its model remembers best."""
    case = certified(without_scores(CLAIM, 150), replace(ROWS, forget=ROWS.forget[150:]))
    assert case.said.result == "INCONCLUSIVE"
    fifth = case.said.checks[4]
    assert fifth.value == "350 of 500 erased records have scores, 0 of them held out"
    # A verifier that does not count certifies it all the same.
    lying = replace(case.said, result="PASS", checks=CASE.said.checks)
    found = recheck(lying, case.given())
    assert found.result == "DIFFERS"
    line = named(found, "scores: erased rows")
    assert (line.status, line.certified) == ("DIFFERS", "500 erased, 500 with scores")
    assert line.recomputed == "500 erased, 350 with scores (0 of them held out)"
