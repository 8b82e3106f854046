"""Certificates of simulated verdicts, with the files that belong to them."""

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from lethe.certificates.evidence import (
    Removal,
    build_evidence,
    evidence_part,
    prove_removal,
    scores_part,
)
from lethe.certificates.evidence import Report as EvidenceReport
from lethe.certificates.retained_tree import RetainedTree, retained_root
from lethe.certificates.shape import read
from lethe.certificates.statement import (
    AttemptPart,
    CheckPart,
    Guarantee,
    MethodPart,
    ModelPart,
    Predicate,
    RetainedSet,
    Scope,
    SetState,
    Subject,
    VerifierPart,
    VersionPart,
    build_statement,
    write_escalation,
)
from tests.lethe.certificates.build import Office, commitments, contents, salts
from tests.lethe.certificates.leaves import bare
from tests.workers.judge.empirical_claims import World, committed, simulated
from workers.arrays import encode_tensors
from workers.judge.base import Report, RetainedSetClaim, UpdateClaim
from workers.judge.exact_retrained import VERIFIER as RETRAINED
from workers.judge.recheck.files import RecheckFiles
from workers.judge.recheck.lines import Line, Recheck
from workers.judge.samples.empirical import VERIFIER
from workers.judge.samples.empirical_claim import EmpiricalClaim
from workers.judge.scores.file import decode_scores, encode_scores
from workers.judge.scores.order import CommittedRows

MODEL = encode_tensors({"weight": np.ones((2, 3), dtype=np.float32)}, {"kind": "network/1"})
BEFORE = sha256(b"the model before").hexdigest()
UNMEMORABLE = simulated(3, World(forget=(0.0, 0.0), retained=(0.0, 0.0)))
# An erasure of 500 records, all with scores, and an earlier one in the same update of two.
SALTS = salts(507)
OTHERS = commitments({name: SALTS[name] for name in list(SALTS)[505:]})
ERASED = {name: SALTS[name] for name in list(SALTS)[:500]}
LEFT = commitments({name: SALTS[name] for name in list(SALTS)[500:505]})
LINK = sorted([*LEFT, *commitments(ERASED)])
PROVEN = prove_removal(RetainedTree(bare(LINK)), ERASED)
REMOVAL = read(Removal, PROVEN)


@dataclass(frozen=True)
class Case:
    """A certificate's predicate, its evidence and the scores of its verdict."""

    said: Predicate
    evidence: bytes
    scores: bytes
    model: bytes = MODEL

    def given(self, **changes: Any) -> RecheckFiles:
        """Return all the files."""
        files: dict[str, Any] = {
            "evidence": self.evidence,
            "scores": [self.scores],
            "model": self.model,
        }
        return RecheckFiles(**{**files, **changes})

    def bundle(self) -> bytes:
        """Return the certificate file."""
        subject = Subject("small/2", self.said.model.version_after.digest)
        return Office().seal(build_statement([subject], self.said))


def without_scores(claim: EmpiricalClaim, rows: int) -> EmpiricalClaim:
    """Return the claim without the scores of this many forget rows."""
    parts = ("labels", "clients", "before", "after")
    kept = {f"forget_{part}": getattr(claim, f"forget_{part}")[rows:] for part in parts}
    return replace(claim, **kept)


def about(claim: EmpiricalClaim) -> tuple[EmpiricalClaim, CommittedRows]:
    """Return a simulated claim as if it were of MODEL, of ERASED and of committed rows."""
    before, after = REMOVAL.before, REMOVAL.after
    every = [*LINK, *OTHERS]
    update = UpdateClaim(OTHERS, [], retained_root(bare(every)), 507, after.root, 5)
    sets = RetainedSetClaim(
        LINK, LEFT, commitments(ERASED), before.root, 505, after.root, 5, update
    )
    rows = committed(claim)
    published = sha256(MODEL).hexdigest()
    found = replace(
        claim,
        retained_set=sets,
        published_digest=published,
        model=published,
        rows_before=(rows.before, rows.before),
        rows_after=(rows.after, rows.after),
        model_before=(BEFORE, BEFORE),
    )
    return found, rows


def parts(report: Report) -> tuple[CheckPart, ...]:
    """Return checks in the form of certificates."""
    return report.checks


def certified(claim: EmpiricalClaim, rows: CommittedRows, **changes: Any) -> Case:
    """Return the certificate of a verdict by samples; `changes` are of its predicate."""
    file = encode_scores(claim, rows)
    report = VERIFIER.verify(decode_scores(file)[0])
    checks: tuple[CheckPart, ...] = changes.pop("checks", parts(report))
    listed = scores_part(sha256(file).hexdigest(), certified=True)
    said, evidence = issued(
        checks, report.result, {"policy": claim.policy_digest}, rows, changes
    )
    return Case(replace(said, evidence=(*said.evidence, listed)), evidence, file)


def escalated(claim: EmpiricalClaim, rows: CommittedRows, **parameters: str) -> Case:
    """Return the certificate of a retraining after an attempt that was judged by samples."""
    file = encode_scores(claim, rows)
    report = VERIFIER.verify(decode_scores(file)[0])
    told = {"policy": claim.policy_digest}
    if report.result != "PASS":  # a passed one is reported only without a verdict
        told |= write_escalation(
            [AttemptPart(1, "puf-special", report.result, None, parts(report))]
        )
    trained = VerifierPart(RETRAINED.id, RETRAINED.version, sha256(b"code").hexdigest())
    published = sha256(MODEL).hexdigest()
    checks = (
        CheckPart(1, "model-file", "value", f"sha256 {published}", None, "equal", True),
        CheckPart(2, "purge", "value", "0 of 3 readable", None, "0 readable", True),
        CheckPart(
            3,
            "re-execution",
            "value",
            f"3 of 3 rounds, sha256 {published}",
            None,
            "equal",
            True,
        ),
        CheckPart(4, "rows-before", "value", f"sha256 {rows.before}", None, "equal", True),
    )
    promised = Guarantee("exact-retrained", "It was trained again.", {})
    changes = {"guarantee": promised, "verifier": trained}
    said, evidence = issued(checks, "PASS", {**told, **parameters}, rows, changes)
    listed = scores_part(sha256(file).hexdigest(), certified=False)
    return Case(replace(said, evidence=(*said.evidence, listed)), evidence, file)


def issued(
    checks: tuple[CheckPart, ...],
    result: Any,
    parameters: dict[str, str],
    rows: CommittedRows,
    changes: dict[str, Any],
) -> tuple[Predicate, bytes]:
    """Return a certificate's predicate and its evidence; `changes` are of the predicate."""
    sampled = VerifierPart(VERIFIER.id, VERIFIER.version, sha256(b"code").hexdigest())
    verifier = changes.get("verifier", sampled)
    statistics = changes.pop("statistics", {"before": rows.before, "after": rows.after})
    details = changes.pop("details", {"policy": parameters.get("policy", "none")})
    report = EvidenceReport(verifier, result, checks, details)
    evidence = build_evidence(PROVEN, report, statistics)
    said = replace(
        contents()[1],
        model=ModelPart("small", VersionPart(BEFORE), VersionPart(sha256(MODEL).hexdigest())),
        scope=Scope("sample", 500, REMOVAL.records_root),
        retained_set=RetainedSet(
            SetState(REMOVAL.before.root, 505),
            SetState(REMOVAL.after.root, 5),
            sha256(evidence).hexdigest(),
        ),
        method=MethodPart("puf-special", "1", parameters, sha256(b"m").hexdigest(), {}),
        guarantee=Guarantee("empirical-approximate", "Tests found nothing.", {}),
        checks=checks,
        result=result,
        evidence=(evidence_part("erasure-evidence", evidence),),
        verifier=verifier,
    )
    return replace(said, **changes), evidence


def named(found: Recheck, name: str) -> Line:
    (line,) = (line for line in found.lines if line.name == name)
    return line


def differing(found: Recheck) -> set[str]:
    return {line.name for line in found.lines if line.status == "DIFFERS"}
