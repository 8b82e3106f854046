"""Audit reports: what holds, and that nothing in one can be changed unnoticed."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, binom

from lethe import canonical
from lethe.certificates.audits.check import ReportError, check_report, epsilon, upper
from lethe.certificates.audits.report import (
    AuditedMethod,
    AuditPredicate,
    BoundPart,
    build_report,
    words,
)
from lethe.certificates.bundle import sign_envelope
from lethe.certificates.errors import CertificateError, EnvelopeError, ShapeError
from lethe.certificates.statement import VerifierPart
from tests.lethe.certificates.build import CERTIFICATE_ID, KEYID, issuer_key
from workers.judge.algorithm_audit import Bound, bound, judge
from workers.judge.inference.intervals import spell


def statistics(*pairs: tuple[float, float, float]) -> bytes:
    """Return the file of so many pairs' numbers: before, after, retrained."""
    numbers = [[value.hex() for value in pair] for pair in pairs]
    return canonical.encode({"kind": "audit-statistics", "pairs": numbers})


GRID = [-1.5 + 3 * step / 31 for step in range(32)]
# 32 pairs that fit, 32 that are judged: of the models before the last is missed, of those
# after, and retrained, half lie on either side.
PAIRS = [
    *((value + 8, value + 0.2, value) for value in GRID),
    *((8.0, sign, sign) for sign in [3.0, -3.0] * 15 + [3.0]),
    (0.0, -3.0, -3.0),
]
STATISTICS = statistics(*PAIRS)
NOW = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
CONFIGURATION = {
    "model": "x-rays",
    "method": "puf-special",
    "pairs": "64",
    "confidence": "0.95",
    "delta": "0.001",
}


def part(false_positives: int, false_negatives: int) -> BoundPart:
    found = bound(false_positives, false_negatives, 32, 0.95, 0.001)
    return BoundPart(
        false_positives,
        false_negatives,
        32,
        f"{found.fpr_upper:.6g}",
        f"{found.fnr_upper:.6g}",
        f"{found.epsilon:.6g}",
    )


def predicate(**changes: Any) -> AuditPredicate:
    after, before = changes.pop("after", part(16, 16)), changes.pop("before", part(0, 1))
    resolution = f"{bound(0, 0, 32, 0.95, 0.001).epsilon:.6g}"
    result = changes.pop("result", "NOTHING-FOUND")
    made = AuditPredicate(
        audit_id=CERTIFICATE_ID,
        model="x-rays",
        registration="a" * 64,
        configuration=CONFIGURATION,
        method=AuditedMethod("puf-special", "2", "b" * 64),
        auditor=VerifierPart("u-lira", "1", "c" * 64),
        started_at=NOW,
        reported_at=NOW,
        versions=(1, 2),
        environments=({"device": "cpu"},),
        pairs=64,
        gave_way=0,
        after=after,
        before=before,
        resolution=resolution,
        result=result,
        statement=words(result, after.epsilon, before.epsilon, resolution),
    )
    return replace(made, **changes)


def file(said: AuditPredicate, numbers: bytes = STATISTICS) -> bytes:
    payload = build_report(sha256(numbers).hexdigest(), said)
    return canonical.encode(sign_envelope(payload, issuer_key(), KEYID))


def check(said: AuditPredicate, statistics: bytes | None = STATISTICS) -> Any:
    return check_report(file(said), issuer_key().public_key(), statistics)


def test_a_report_holds_and_names_its_digests() -> None:
    data = file(predicate())
    checked = check_report(data, issuer_key().public_key(), STATISTICS)
    assert checked.digest == sha256(data).hexdigest()
    text = json.dumps(CONFIGURATION, sort_keys=True, separators=(",", ":"))
    assert checked.configuration == sha256(text.encode()).hexdigest()
    assert checked.statement.predicate == predicate()


def test_leaks_and_audits_without_power_hold_too() -> None:
    leak = predicate(after=part(0, 3), result="LEAK")
    assert "at least" in check(leak, None).statement.predicate.statement
    blind = predicate(before=part(15, 16), result="INCONCLUSIVE")
    assert "says nothing" in check(blind, None).statement.predicate.statement


LIES = {
    "a smaller epsilon": predicate(
        after=replace(part(0, 3), epsilon="0"), result="NOTHING-FOUND"
    ),
    "a larger control": predicate(before=replace(part(9, 9), epsilon="1.2")),
    "fewer errors": predicate(after=replace(part(16, 16), false_negatives=2)),
    "another upper limit": predicate(after=replace(part(16, 16), fpr_upper="0.5")),
    "no number": predicate(after=replace(part(16, 16), epsilon="nan")),
    "a better resolution": predicate(resolution="5"),
    "a leak as clean": predicate(after=part(0, 3)),
    "no power as clean": predicate(before=part(16, 16)),
    "other words": predicate(statement="All is well."),
    "more pairs": predicate(pairs=128),
    "another method": predicate(method=AuditedMethod("hf-kcu", "2", "b" * 64)),
    "another model": predicate(model="ct-scans"),
    "another confidence": predicate(configuration={**CONFIGURATION, "confidence": "0.5"}),
    "another delta": predicate(configuration={**CONFIGURATION, "delta": "0.3"}),
    "no confidence": predicate(configuration={**CONFIGURATION, "confidence": "x"}),
    "errors beyond the trials": predicate(after=replace(part(16, 16), false_positives=33)),
    "more ways given than pairs": predicate(gave_way=65),
    "versions in reverse": predicate(versions=(3, 2)),
    "confidence below the API's": predicate(
        configuration={**CONFIGURATION, "confidence": "0.4"}
    ),
    "confidence above the API's": predicate(
        configuration={**CONFIGURATION, "confidence": "0.99999"}
    ),
    "a delta above the API's": predicate(configuration={**CONFIGURATION, "delta": "0.51"}),
    "no number at all": predicate(configuration={**CONFIGURATION, "delta": "nan"}),
    "another control than the numbers'": predicate(before=part(1, 0)),
    "other errors than the numbers'": predicate(after=part(16, 17)),
}
MANY = replace(part(16, 16), trials=1 << 20, false_positives=1 << 19)
LIES["more pairs than an audit has"] = predicate(
    pairs=1 << 21, after=MANY, before=MANY, configuration={**CONFIGURATION, "pairs": "2097152"}
)
SPOILT = {
    "no JSON": b"the numbers",
    "no object": b"[]",
    "another kind": STATISTICS.replace(b"audit-statistics", b"audit-numbers"),
    "a pair less": statistics(*PAIRS[:-1]),
    "two numbers": statistics(*PAIRS).replace(b'"0x0.0p+0",', b""),
    "a word": STATISTICS.replace(b"0x0.0p+0", b"nothing"),
    "another spelling": STATISTICS.replace(b"0x0.0p+0", b"0x0p+0"),
    "no finite number": STATISTICS.replace(b"0x0.0p+0", b"inf"),
    "a number too large": statistics(*PAIRS[:-1], (1e200, -3.0, -3.0)),
    "a number of JSON": STATISTICS.replace(b'"0x0.0p+0"', b"0"),
    "too many bytes": b" " * ((1 << 20) + 1),
    "an error more": statistics(*PAIRS[:-2], *[(0.0, -3.0, -3.0)] * 2),
    "an error less": statistics(*PAIRS[:-1], (8.0, -3.0, -3.0)),
    "a leak": statistics(*((before, before, out) for before, _, out in PAIRS)),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_does_not_follow_from_the_counts_is_refused(lie: str) -> None:
    with pytest.raises(ReportError):
        check(LIES[lie])


@pytest.mark.parametrize("name", SPOILT)
def test_numbers_that_do_not_give_the_counts_are_refused(name: str) -> None:
    assert SPOILT[name] != STATISTICS
    data = file(predicate(), SPOILT[name])
    with pytest.raises((ReportError, canonical.NotCanonicalError)):
        check_report(data, issuer_key().public_key(), SPOILT[name])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("pairs", [16, 64, 300])
def test_errors_are_counted_as_the_auditor_counts_them(pairs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    means = np.array([2.0, seed / 4, 0.0])
    numbers = rng.normal(means, [1, 1.5, 1], (pairs, 3)).tolist()
    before_, after_, retrained = map(list, zip(*numbers, strict=True))
    found = judge(before_, after_, retrained, 0.95, 0.001)

    def told(bound: Bound) -> BoundPart:
        counts = bound.false_positives, bound.false_negatives, bound.trials
        return BoundPart(
            *counts, *map(spell, (bound.fpr_upper, bound.fnr_upper, bound.epsilon))
        )

    after, before, reach = told(found.after), told(found.before), spell(found.resolution)
    said = predicate(
        pairs=pairs,
        configuration={**CONFIGURATION, "pairs": str(pairs)},
        after=after,
        before=before,
        result=found.result,
        resolution=reach,
        statement=words(found.result, after.epsilon, before.epsilon, reach),
    )
    file_ = statistics(*numbers)
    check_report(file(said, file_), issuer_key().public_key(), file_)


def test_another_key_another_byte_and_another_file_are_refused() -> None:
    data = file(predicate())
    with pytest.raises(EnvelopeError):
        check_report(data, issuer_key(7).public_key())
    with pytest.raises(ReportError, match="statistics"):
        check(predicate(), b"other numbers")
    envelope = json.loads(data)
    envelope["extra"] = "1"
    with pytest.raises(ShapeError):
        check_report(canonical.encode(envelope), issuer_key().public_key())
    for place in range(0, len(data), 97):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises((CertificateError, canonical.NotCanonicalError)):
            check_report(bytes(changed), issuer_key().public_key())
    with pytest.raises(ReportError, match="bytes"):
        check_report(b" " * ((1 << 20) + 1), issuer_key().public_key())


@pytest.mark.parametrize(
    ("count", "trials"),
    [(0, 8), (1, 32), (16, 32), (31, 32), (5, 2048), (1968, 2048), (2047, 2048)],
)
def test_the_upper_end_is_that_of_the_binomial(count: int, trials: int) -> None:
    found = upper(count, trials, 0.025)
    assert found == pytest.approx(beta.ppf(0.975, count + 1, trials - count), rel=1e-9)
    assert binom.cdf(count, trials, found) == pytest.approx(0.025)
    assert upper(trials, trials, 0.025) == 1


@pytest.mark.parametrize(
    ("positives", "negatives"), [(0, 0), (1, 9), (9, 1), (16, 16), (32, 0)]
)
def test_the_arithmetic_is_the_auditors(positives: int, negatives: int) -> None:
    wanted = bound(positives, negatives, 32, 0.99, 0.01).epsilon
    assert epsilon(positives, negatives, 32, 0.99, 0.01) == pytest.approx(wanted, abs=1e-9)
