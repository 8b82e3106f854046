"""Advantages of attacks on a certificate: with intervals, before and after, deciding nothing."""

from lethe.certificates.statement import CheckPart
from tests.workers.judge.empirical_claims import POLICY, noop, simulated
from workers.judge.samples.empirical import VERIFIER
from workers.judge.samples.empirical_claim import EmpiricalClaim

HONEST = simulated(1)


def checks_of(claim: EmpiricalClaim) -> dict[str, CheckPart]:
    return {check.name: check for check in VERIFIER.verify(claim).checks}


def test_advantages_are_reported_with_their_intervals_and_decide_nothing() -> None:
    found = checks_of(HONEST)
    for attack in POLICY.attacks:
        for name, of in (("advantage", "accuracy"), ("best-advantage", "auc")):
            check = found[f"{attack}:{name}"]
            assert check.interval is not None
            low, high = map(float, check.interval)
            after, before = (float(part.split()[0]) for part in check.value.split("; "))
            assert low <= after <= high
            assert before > 0.5 > after
            assert "at 95 %" in check.value
            assert check.threshold is None
            # What the deciding check says in words is the same number.
            assert found[f"{attack}:{of}"].value.endswith(f" {after:.4f}")
    done = checks_of(noop(HONEST))
    assert done["yeom:best-advantage"].passed
    assert "Holm over 12 tests" in str(done["yeom:auc"].threshold)
    chance = found["yeom:advantage"].value.split(";")[0]
    assert done["yeom:advantage"].value.split(";")[0] != chance
