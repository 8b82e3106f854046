"""A verdict by samples, recomputed from its scores and compared check by check."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from importlib import metadata
from itertools import zip_longest

import numpy as np

from lethe.catalogue import check_of
from lethe.certificates.statement import AttemptPart, CheckPart, Predicate, spelled
from workers.arrays import decode_tensors
from workers.errors import ArtifactError, ModelError
from workers.judge.base import Report
from workers.judge.checks import MODEL_FILE
from workers.judge.recheck.files import POLICY, RecheckFiles
from workers.judge.recheck.lines import ATTEMPTS, UNLISTED, Line, compare, line_name, skipped
from workers.judge.samples.empirical import VERIFIER
from workers.judge.samples.empirical_claim import EmpiricalClaim
from workers.judge.samples.samples import coverage
from workers.judge.scores.file import decode_scores, judge_of
from workers.judge.scores.order import CommittedRows, problem_with
from workers.judge.silos import are_missing

NUMERICS = ("numpy", "scipy")


def rejudge(data: bytes, model: bytes | None) -> tuple[EmpiricalClaim, CommittedRows, Report]:
    """Return the claim in a scores file, its rows, and the verdict on it.

    Values that the service claims to have recomputed are recomputed here: the digests of all
    rows, and that of the model file if it is given. Raises ArtifactError for another file.
    """
    claim, rows = decode_scores(data)
    claim = replace(
        claim,
        rows_before=(claim.rows_before[0], rows.before),
        rows_after=(claim.rows_after[0], rows.after),
    )
    if model is not None:
        claim = replace(claim, model=sha256(model).hexdigest(), finite=_is_finite(model))
    return claim, rows, VERIFIER.verify(claim)


def compare_verdict(
    said: Predicate, given: RecheckFiles, data: bytes
) -> tuple[list[Line], bool]:
    """Return the lines of a certified verdict by samples, and whether it was recomputed."""
    if said.verifier.id != VERIFIER.id:
        return [compare("verifier of scores", said.verifier.id, VERIFIER.id)], False
    if said.verifier.version != VERIFIER.version:
        version = f"{said.verifier.id} {said.verifier.version}"
        return [skipped("verifier", version, another_release(said.verifier.version))], False
    try:
        claim, rows, report = rejudge(data, given.model)
    except ArtifactError as error:
        return [compare("scores", "a scores file", str(error))], False
    lines = tied(said, given, claim, rows)
    lines.append(compare("scores: judged as", said.verifier.version, judge_of(data)))
    published = said.model.version_after.digest
    lines.append(compare("scores: model after", published, claim.published_digest))
    lines.append(_judgement(claim))
    for certified, again in zip_longest(said.checks, report.checks):
        lines.append(_compare_check(certified, again, given))
    lines.append(compare("verdict", said.result, report.result))
    return [*lines, *_numerics(said.method.environment)], True


def another_release(version: str) -> str:
    """Return why a verdict of another version is not recomputed."""
    return (
        f"judged as version {version}, and this release judges as version {VERIFIER.version}: "
        "install the one that issued"
    )


def tied(
    said: Predicate, given: RecheckFiles, claim: EmpiricalClaim, rows: CommittedRows
) -> list[Line]:
    """Compare the subject of the scores with the subject of the certificate."""
    sets, kept = claim.retained_set, said.retained_set
    own = "each score is of its own committed row"
    lines = [
        compare(
            "scores: model before", said.model.version_before.digest, claim.model_before[0]
        ),
        compare("scores: policy", said.method.parameters.get(POLICY, ""), claim.policy_digest),
        compare(
            "scores: retained sets",
            f"{kept.before.root.hex()} {kept.before.count}, {kept.after.root.hex()} "
            f"{kept.after.count}",
            f"{sets.before_root.hex()} {sets.before_count}, {sets.after_root.hex()} "
            f"{sets.after_count}",
        ),
        compare("scores: rows", own, problem_with(claim, rows) or own),
    ]
    lines.append(_coverage(said, claim))
    evidence = given.parsed
    if evidence is None:
        return lines  # that it is not evidence is reported elsewhere
    # The log's entries of both versions name these digests: an auditor finds them there.
    digests = {"before": claim.rows_before[0], "after": claim.rows_after[0]}
    for side, digest in digests.items():
        logged = evidence.statistics.get(side)
        name = f"scores: rows {side}"
        # A missing digest must not match a spelling that the scores may contain.
        lines.append(
            Line(name, "DIFFERS", "none in the evidence", digest)
            if logged is None
            else compare(name, logged, digest)
        )
    erased = sorted(record.commitment for record in evidence.removal.records)
    lines.append(
        compare("scores: erased records", _root(erased), _root(sorted(set(sets.erased))))
    )
    return lines


def _coverage(said: Predicate, claim: EmpiricalClaim) -> Line:
    """Compare the number of erased records with the number that have scores: all must."""
    name, records = "scores: erased rows", said.scope.records
    erased, scored = coverage(claim)
    stated = f"{records} erased, {records} with scores"
    found = f"{erased} erased, {scored} with scores"
    if found == stated:
        held = f"{claim.unseen} of them held out, and never trained on"
        return Line(name, "same", stated, found, held)
    found += f" ({claim.unseen} of them held out)"
    if not scored or are_missing(claim.silos):
        # Such a verdict is not PASS, and reports the missing rows itself.
        return skipped(name, stated, f"{found}: no scores, or those of a silo are missing")
    return Line(name, "DIFFERS", stated, found)


def _judgement(claim: EmpiricalClaim) -> Line:
    """Return which log entry a judgement with this seed must be: that sets its alpha."""
    place = claim.requests_before + 1
    reason = (
        f"the log's entry model.judging of this seed must be number {place} of its model, and "
        "name the model after"
    )
    return skipped("scores: judgement", f"sha256 {sha256(claim.seed).hexdigest()}", reason)


def _compare_check(
    certified: CheckPart | None, again: CheckPart | None, given: RecheckFiles
) -> Line:
    name = _name(certified or again)
    line = _same_check(name, certified, again)
    if line.status == "DIFFERS" or certified is None:
        return line
    spec = check_of(certified.name)
    if spec is not None and spec.rests_on_service:
        return skipped(name, check_line(certified), spec.needs)
    if certified.name == MODEL_FILE.name and given.model is None:
        return skipped(name, check_line(certified), "give the file with --model")
    return line


def _same_check(name: str, stated: CheckPart | None, again: CheckPart | None) -> Line:
    """Compare all fields of a check but its number; its name is only printed if it differs."""
    said, found = check_line(stated), check_line(again)
    if stated is not None and again is not None and stated.name != again.name:
        said, found = f"{stated.name} {said}", f"{again.name} {found}"
    return compare(name, said, found)


def check_line(check: CheckPart | None) -> str:
    """Return all fields of a check, except its number and its name."""
    if check is None:
        return "no such check"
    interval = "" if check.interval is None else f" [{check.interval[0]}, {check.interval[1]}]"
    limit = "" if check.threshold is None else f"; threshold {check.threshold}"
    outcome = "passed" if check.passed else "FAILED"
    return f"{outcome}: {check.quantity}: {check.value}{interval}{limit}"


def _numerics(certified: Mapping[str, str]) -> list[Line]:
    """Report that other library versions computed: a last digit may differ because of them."""
    here = {name: metadata.version(name) for name in NUMERICS}
    there = {name: certified.get(name, "unknown") for name in NUMERICS}
    if here == there:
        return []
    words = [", ".join(f"{name} {said[name]}" for name in NUMERICS) for said in (there, here)]
    return [skipped("numerics", words[0], f"computed with {words[1]}: last digits may differ")]


def _name(check: CheckPart | None) -> str:
    return "" if check is None else f"{check.number} {check.name}"


def _root(commitments: Sequence[bytes]) -> str:
    return f"{len(commitments)}, sha256 {sha256(b''.join(commitments)).hexdigest()}"


def _is_finite(model: bytes) -> bool:
    try:
        arrays, _ = decode_tensors(model)
    except ModelError:
        return False
    return all(bool(np.isfinite(array).all()) for array in arrays.values())


# --- an attempt before the certified one ---------------------------------------------------
# An attempt must rightly be no PASS. Its model file was destroyed: the file's digest rests on
# the service's word.
REFUTED = "a verdict that is no PASS"
PASSED = "its scores give PASS, but it is listed without a verdict: ask why"


def compare_attempt(
    said: Predicate, given: RecheckFiles, attempt: AttemptPart, data: bytes
) -> list[Line]:
    """Return the lines of a reported attempt, and of the scores that it was judged by."""
    name = line_name(attempt)
    try:
        report, lines = _rejudge(said, given, data)
    except ArtifactError as error:
        return [compare(name, "a scores file", str(error))]
    stated, again = spelled(attempt), f"{attempt.method}: {_found(report)}"
    others = _other_checks(attempt, report)
    judge = judge_of(data)
    if judge != VERIFIER.version and (report.result == "PASS" or stated != again or others):
        # Another version's verdict is not refuted by this version's.
        return [*lines, skipped(name, stated, another_release(judge))]
    if report.result == "PASS":
        # Whatever is reported: an attempt that passed does not precede an escalation.
        return [*lines, compare(name, REFUTED, again)]
    return [*lines, *others, compare(name, stated, again)]


def compare_unlisted(
    said: Predicate, given: RecheckFiles, data: bytes, *, unjudged: bool
) -> list[Line]:
    """Return the lines of scores that belong to no reported attempt.

    unjudged: whether an attempt is reported without a verdict. An attempt that passed, and was
    not certified because the log contradicted it, is reported so, and its scores are named.
    """
    try:
        report, lines = _rejudge(said, given, data)
    except ArtifactError as error:
        return [compare(ATTEMPTS, "a scores file", str(error))]
    judge = judge_of(data)
    if judge != VERIFIER.version:
        return [*lines, skipped(ATTEMPTS, UNLISTED, another_release(judge))]
    if report.result == "PASS" and unjudged:
        return [*lines, skipped(ATTEMPTS, UNLISTED, PASSED)]
    return [*lines, compare(ATTEMPTS, UNLISTED, _found(report))]


def _rejudge(said: Predicate, given: RecheckFiles, data: bytes) -> tuple[Report, list[Line]]:
    """Return the verdict on scores, and how their subject differs from that of `said`."""
    claim, rows, report = rejudge(data, None)
    return report, [line for line in tied(said, given, claim, rows) if line.status == "DIFFERS"]


def _found(report: Report) -> str:
    failed = [f"{check.name}: {check.value}" for check in report.checks if not check.passed]
    return f"{report.result} ({'; '.join(failed)})"


def _other_checks(attempt: AttemptPart, report: Report) -> list[Line]:
    """Return a line for each check that was reported differently."""
    pairs = zip_longest(attempt.checks, report.checks)
    lines = [
        _same_check(f"{line_name(attempt)}: {(one or again).name}", one, again)
        for one, again in pairs
    ]
    return [line for line in lines if line.status == "DIFFERS"]
