"""The verdict on approximate erasure: what passes, what fails, and what is undecided."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from lethe.certificates.statement import CheckPart
from tests.workers.judge.empirical_claims import POLICY, World, noop, sets, simulated
from workers.arrays import Matrix
from workers.judge import registry
from workers.judge.base import Probe, Report
from workers.judge.policy.document import digest
from workers.judge.policy.policy import Policy
from workers.judge.samples.empirical_claim import EmpiricalClaim, ReferenceModels

VERIFIER = registry.get("empirical-approximate")
HONEST = simulated(1)


def named(report: Report, name: str) -> CheckPart:
    (found,) = (check for check in report.checks if check.name == name)
    return found


def failed(report: Report) -> set[str]:
    return {check.name for check in report.checks if not check.passed}


def under(policy: Policy, claim: EmpiricalClaim = HONEST, **changes: Any) -> EmpiricalClaim:
    return replace(claim, policy=policy, policy_digest=digest(policy), **changes)


def test_an_honest_claim_passes_and_says_what_was_tested() -> None:
    report = VERIFIER.verify(HONEST)
    assert report.result == "PASS"
    assert [check.number for check in report.checks] == list(range(1, len(report.checks) + 1))
    policy, samples = named(report, "policy").value, named(report, "samples")
    for word in (HONEST.seed.hex(), "request 1", "0.0303964", "tau 0.1", "yeom", "shokri"):
        assert word in policy
    assert "of 500 forget rows" in samples.value
    assert "power at level 0.0025" in samples.value
    assert "at least 320 pairs" in str(samples.threshold)
    for attack in POLICY.attacks:
        for part in (f"control:{attack}", f"{attack}:accuracy", f"{attack}:auc"):
            check = named(report, part)
            assert check.interval is not None
            low, high = map(float, check.interval)
            assert low < float(check.value.split()[0]) < high
            assert "interval at level" in str(check.threshold)
    assert "needs 2995 non-members" in named(report, "yeom:tail").value
    assert "TPR at FPR: at the threshold" in named(report, "yeom:tail").quantity
    assert "no retrained reference" in named(report, "distances").value


def test_the_verdict_can_be_repeated() -> None:
    assert VERIFIER.verify(HONEST) == VERIFIER.verify(simulated(1))


def test_the_sample_is_of_the_seed_and_of_the_published_digest() -> None:
    def measured(claim: EmpiricalClaim) -> str:
        return named(VERIFIER.verify(claim), "shokri:auc").value

    assert measured(replace(HONEST, seed=HONEST.seed[::-1])) != measured(HONEST)
    other = replace(HONEST, published_digest="0" * 64, model="0" * 64)
    assert measured(other) != measured(HONEST)


def refuted(claim: EmpiricalClaim) -> set[str]:
    report = VERIFIER.verify(claim)
    assert report.result == "FAIL"
    return failed(report)


def undecided(claim: EmpiricalClaim) -> set[str]:
    report = VERIFIER.verify(claim)
    assert report.result == "INCONCLUSIVE"
    return failed(report)


def test_nothing_done_fails() -> None:
    assert refuted(noop(HONEST)) >= {"shokri:auc", "yeom:accuracy", "song-confidence:tail"}


def test_far_below_chance_fails() -> None:
    # Forget rows were taught wrong labels: they do not look like members.
    assert "yeom:auc" in refuted(simulated(2, World(forget=(5.0, -5.0))))


def test_a_few_remembered_rows_fail_where_no_average_shows_them() -> None:
    after = HONEST.forget_after.copy()
    after[:75] += 60.0 * np.eye(after.shape[1])[HONEST.forget_labels[:75]]
    found = refuted(replace(HONEST, forget_after=after))
    assert {"song-confidence:tail", "yeom:tail"} <= found


def test_without_memory_before_nothing_can_be_shown() -> None:
    found = undecided(simulated(3, World(forget=(0.0, 0.0), retained=(0.0, 0.0))))
    assert all(name.startswith("control:") for name in found)


def test_small_samples_are_refused() -> None:
    assert undecided(simulated(4, World(rows=(100, 120, 300)))) == {"samples", "attacks"}
    assert undecided(simulated(4, World(rows=(500, 600, 150)))) == {"samples", "attacks"}
    for more in ({"minimum_others": 300}, {"minimum_pairs": 500}, {"power": 0.999}):
        assert undecided(under(replace(POLICY, **more))) == {"samples", "attacks"}


def test_a_later_request_needs_larger_samples() -> None:
    found = replace(HONEST, requests_before=9)
    assert undecided(found) == {"samples", "attacks"}
    assert "at level 2.5" in named(VERIFIER.verify(found), "samples").value


def test_rows_of_other_people_match_nothing() -> None:
    assert undecided(replace(HONEST, pool_clients=HONEST.pool_clients + 7)) == {
        "samples",
        "attacks",
    }


def test_more_forget_rows_than_erased_records_fail() -> None:
    kept, gone = sets(499)
    assert refuted(replace(HONEST, retained_set=kept, purge=gone)) == {"samples", "attacks"}


def test_an_erased_record_without_scores_leaves_the_verdict_open() -> None:
    """It may be the one that is remembered, so the others' scores are not considered."""
    kept, gone = sets(501)
    claim = replace(HONEST, retained_set=kept, purge=gone)
    assert undecided(claim) == {"samples", "attacks"}
    fifth = named(VERIFIER.verify(claim), "samples").value
    assert fifth == "500 of 501 erased records have scores, 0 of them held out"
    held = named(VERIFIER.verify(replace(claim, unseen=1)), "samples")
    assert held.passed
    assert held.value.startswith("501 of 501 erased records have scores, 1 of them held out; ")


def test_lost_accuracy_fails_and_unclear_accuracy_is_undecided() -> None:
    broken = replace(HONEST, pool_after=HONEST.pool_after[:, ::-1].copy())
    assert "test-accuracy" in refuted(broken)
    retained = HONEST.retained_after.copy()
    retained[:15] *= -1  # 5 % lost is what is allowed
    assert undecided(replace(HONEST, retained_after=retained)) == {"retained-accuracy"}


@pytest.mark.parametrize(
    ("changes", "name", "result"),
    [
        ({"model": "0" * 64}, "model-file", "FAIL"),
        ({"finite": False}, "model-file", "FAIL"),
        ({"policy_digest": "0" * 64}, "policy", "FAIL"),
        ({"policy": replace(POLICY, tau=0.2)}, "policy", "FAIL"),
        ({"seed": b"short"}, "policy", "INCONCLUSIVE"),
        ({"retained_set": replace(HONEST.retained_set, after_count=4)}, "retained-set", "FAIL"),
        ({"purge": replace(HONEST.purge, retained_rows=["9"] * 5)}, "retained-set", "FAIL"),
        ({"purge": replace(HONEST.purge, probes=[Probe("x", "", True)])}, "purge", "FAIL"),
    ],
)
def test_what_was_planted_is_found(changes: dict[str, Any], name: str, result: str) -> None:
    report = VERIFIER.verify(replace(HONEST, **changes))
    assert report.result == result
    assert name in failed(report)


def test_distances_are_reported_and_decide_where_the_policy_limits_them() -> None:
    both = np.concatenate([HONEST.forget_after, HONEST.pool_after])
    near = both + 0.01 * np.random.default_rng(0).normal(size=both.shape)
    report = VERIFIER.verify(replace(HONEST, retrained=near, parameter_gap=(3.53553, 1 / 3)))
    assert report.result == "PASS"
    assert named(report, "distance:parameter-gap").value.startswith("3.53553, 0.333333")
    assert named(report, "distance:output-kl").interval is not None
    assert "distance:retained-accuracy" not in {check.name for check in report.checks}
    limited = replace(POLICY, distances={"output-kl": 0.01, "disagreement": 0.1})
    assert VERIFIER.verify(under(limited, retrained=near)).result == "PASS"
    assert refuted(under(limited, retrained=-both)) == {
        "distance:output-kl",
        "distance:disagreement",
    }
    assert undecided(under(limited)) == {
        "distance:output-kl",
        "distance:disagreement",
        "trainings",
    }


def test_attacks_by_reference_models() -> None:
    policy = replace(POLICY, attacks=("lira", "rmia"), references=20)
    assert undecided(under(policy)) == {"trainings"} | {
        label
        for name in policy.attacks
        for label in (f"control:{name}", f"{name}:auc", f"{name}:tail")
    }
    # Twenty models, trained on half of the rows each: LiRA is online.
    labels = np.concatenate([HONEST.forget_labels, HONEST.pool_labels])
    rng = np.random.default_rng(3)
    included = (np.arange(20)[:, None] + np.arange(len(labels))) % 2 == 0
    base = np.concatenate([HONEST.forget_after, HONEST.pool_after])
    logits = base + 5.0 * included[:, :, None] * np.eye(5)[labels]
    references = ReferenceModels(logits + 0.3 * rng.normal(size=logits.shape), included)
    report = VERIFIER.verify(under(policy, references=references))
    assert report.result == "PASS"
    assert float(named(report, "control:lira").value.split()[0]) > 0.95
    assert "; accuracy 1.0000 (920 of 920" in named(report, "control:lira").value
    assert "; accuracy" not in named(report, "control:rmia").value
    reported = {check.name for check in report.checks if check.name.endswith("advantage")}
    assert reported == {"lira:advantage", "lira:best-advantage", "rmia:best-advantage"}
    assert refuted(noop(under(policy, references=references))) >= {"lira:auc", "rmia:auc"}


ODD: list[Any] = [
    None, 0, -1, 10**400, "x", b"x", [], np.zeros(0), np.zeros((500, 5), np.float32),
    np.full((500, 5), np.nan), np.full((500, 5), np.inf), np.zeros((500, 0)),
    np.zeros((500, 1)), np.zeros((0, 5)), np.full(500, -1), np.full(500, 5), np.array(3.0),
    np.array([None] * 500), np.zeros((500, 5), np.complex128), np.full((500, 5), 1.7e308),
]  # fmt: skip
OPTIONAL = {
    "retrained",
    "retrained_retained",
    "parameter_gap",
    "references",
    "canary",
    "trained",
}


@pytest.mark.parametrize("field", [f.name for f in fields(EmpiricalClaim)])
def test_odd_claims_never_pass_and_never_raise(field: str) -> None:
    cheap = under(replace(POLICY, attacks=("yeom",), distances={"output-kl": 1.0}))
    for odd in ODD:
        if field in OPTIONAL and odd is None:
            continue
        if field == "requests_before" and isinstance(odd, int) and 0 <= odd < 9:
            continue
        report = VERIFIER.verify(replace(cheap, **{field: odd}))
        assert report.result != "PASS", (field, odd)
        assert [c.number for c in report.checks] == list(range(1, len(report.checks) + 1))
        for check in report.checks:
            assert type(check.value) is str
            assert check.threshold is None or type(check.threshold) is str
            assert "nan" not in check.value


@pytest.mark.parametrize("scale", [1e-300, 1e-20, 1e200, 1.7e307])
def test_scaling_the_logits_hides_nothing(scale: float) -> None:
    done = noop(HONEST)
    scaled = {
        name: getattr(done, name) / 10 * scale
        for name in ("forget_after", "pool_after", "retained_after")
    }
    assert VERIFIER.verify(replace(done, **scaled)).result == "FAIL"


def blown_up(logits: Matrix) -> Matrix:
    """One class is extremely confident where it is the answer, and excluded elsewhere."""
    found = logits.copy()
    first = found.argmax(axis=1) == 0
    found[:, 0] = np.where(first, 1e18 * (1 + np.abs(found[:, 0])), -1e18)
    return found


@pytest.mark.parametrize("seed", [2, 3])
def test_a_class_that_was_blown_up_hides_nothing(seed: int) -> None:
    """One edit of the last layer changes no answer, and flattens all others if it is undone.

    If most unseen rows are right, wrong answers reveal little.
    """
    world = World(forget=(6.0, 4.5), retained=(6.0, 6.0), pool=(4.5, 4.5))
    done = noop(simulated(seed, world))
    answers: dict[str, Any] = {
        name: blown_up(getattr(done, name))
        for name in ("forget_after", "pool_after", "retained_after")
    }
    for name, logits in answers.items():
        assert np.array_equal(logits.argmax(1), getattr(done, name).argmax(1))
    assert VERIFIER.verify(replace(done, **answers)).result == "FAIL"


def test_constant_answers_leak_nothing_and_are_useless() -> None:
    silent = {
        name: np.zeros_like(getattr(HONEST, name))
        for name in ("forget_after", "pool_after", "retained_after")
    }
    assert "retained-accuracy" in refuted(replace(HONEST, **silent))
