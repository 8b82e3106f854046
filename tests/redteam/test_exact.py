"""Cheats at an exact ridge erasure: each is refused, and by the check that should notice it."""

import numpy as np
import pytest

from benchmarks.soundness.providers import HONEST, is_honest
from benchmarks.soundness.ridge_cheats import PROVIDERS
from benchmarks.soundness.ridge_problem import RidgeProblem, make_problem
from workers.judge.ridge.verdict import EXACT as VERIFIER

# The check that must notice it; those before it must have passed.
STATISTICS, HEAD, RETAINED_SET = 1, 2, 3
NOTICED_BY = {
    "no-op": STATISTICS,
    "wrong client": STATISTICS,
    "relabel": STATISTICS,
    "noise": HEAD,
    "last layer": HEAD,
    "overfit one attack": HEAD,
    "old version": HEAD,
    "one ulp": HEAD,
    "forged evidence": STATISTICS,
    "dropped record": RETAINED_SET,
    "swapped rows": RETAINED_SET,
}


@pytest.fixture(scope="module", params=["full", "freivalds"])
def problem(request: pytest.FixtureRequest) -> RidgeProblem:
    found = make_problem(["full", "freivalds"].index(request.param))
    assert found.mode == request.param
    return found


def test_every_cheat_has_its_check() -> None:
    assert {name for name in PROVIDERS if not is_honest(name)} == set(NOTICED_BY)


@pytest.mark.parametrize("name", NOTICED_BY)
def test_a_cheat_is_refused_by_its_check(problem: RidgeProblem, name: str) -> None:
    report = VERIFIER.verify(PROVIDERS[name](problem))
    assert report.result == "FAIL"
    assert min(check.number for check in report.checks if not check.passed) == NOTICED_BY[name]


@pytest.mark.parametrize("name", sorted(HONEST))
def test_the_honest_are_accepted(problem: RidgeProblem, name: str) -> None:
    assert VERIFIER.verify(PROVIDERS[name](problem)).result == "PASS"


def test_the_smallest_lie_is_one_bit(problem: RidgeProblem) -> None:
    head = PROVIDERS["one ulp"](problem).ridge.head
    apart = head.view(np.int32) - problem.after.head.view(np.int32)
    assert np.count_nonzero(apart) == 1
    assert abs(apart).max() == 1


def test_answers_to_the_erased_rows_would_not_tell(problem: RidgeProblem) -> None:
    forged = PROVIDERS["overfit one attack"](problem).ridge.head
    codes = problem.rows.codes[list(problem.erased)].astype(np.float64)
    features = codes * np.ldexp(1.0, np.array(problem.config.exponents))
    np.testing.assert_allclose(features @ forged, features @ problem.after.head, atol=1e-5)
    assert not np.array_equal(forged, problem.after.head)


def test_forged_statistics_agree_with_their_own_head(problem: RidgeProblem) -> None:
    forged = PROVIDERS["forged evidence"](problem).ridge
    assert forged.statistics is not None
    assert forged.statistics.rows == problem.after.statistics.rows
    steps = np.ldexp(1.0, np.array(problem.config.exponents))
    gram = forged.statistics.gram * np.outer(steps, steps)
    normal = gram + problem.config.penalty * np.eye(len(steps))
    solved = np.linalg.solve(normal, steps[:, None] * forged.statistics.moment)
    np.testing.assert_allclose(forged.head, solved, rtol=1e-5)


def test_swapped_rows_agree_with_every_check_but_those_of_contents(
    problem: RidgeProblem,
) -> None:
    checks = VERIFIER.verify(PROVIDERS["swapped rows"](problem)).checks
    failed = [check.name for check in checks if not check.passed]
    assert failed == ["retained-set", "rows-before", "rows-after"]
