"""The second guarantee, and both guarantees with claimed statistics: planted faults fail."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.workers.judge.claims import (
    ERASED,
    C,
    D,
    erasure,
    exact_claim,
    ridge_claim,
    with_rows,
)
from tests.workers.methods.ridge import oracle
from workers.arrays import Matrix, Rows
from workers.judge import registry
from workers.judge.base import Report
from workers.judge.ridge.claim import ClaimedStatistics, ExactClaim, Mode
from workers.methods.ridge.ridge_exact import METHOD
from workers.methods.ridge.statistics.gram import RidgeStatistics, statistics_digest

TRUE = erasure()
SEED = bytes(range(32))
HEAD: Matrix = TRUE.after.witness.sum(axis=0)
BOUND = 1e-10


def told(statistics: RidgeStatistics) -> ClaimedStatistics:
    return ClaimedStatistics(statistics.gram, statistics.moment, statistics.rows)


TOLD = told(TRUE.after.statistics)
BEFORE = told(METHOD.refit(TRUE.config, [TRUE.rows]).state.statistics)


def claim(**changes: Any) -> ExactClaim:
    """A true claim of `numerically-exact`, except for `changes` in its ridge part."""
    whole = exact_claim(TRUE)
    fields = {"head": HEAD, "witness": HEAD[:0, None], "bound": BOUND, **changes}
    return replace(whole, ridge=replace(whole.ridge, **fields))


def fast(**changes: Any) -> ExactClaim:
    return claim(**{"statistics": TOLD, "mode": "freivalds", "seed": SEED, **changes})


def judge(of: ExactClaim, guarantee: str = "numerically-exact") -> Report:
    return registry.get(guarantee).verify(of)


def failed(report: Report) -> list[int]:
    return [check.number for check in report.checks if not check.passed]


def test_a_true_claim_passes_with_the_same_four_numbers() -> None:
    report = judge(claim())
    assert report.result == "PASS"
    names = [(check.number, check.name) for check in report.checks]
    assert names[:2] == [(1, "statistics-recomputed"), (2, "head-bound")]
    assert names[2:] == [(3, "retained-set"), (4, "purge")]
    low, high = report.checks[1].interval or ("", "")
    assert low == "0"
    assert high == report.checks[1].value
    assert 0 < float(high) < BOUND


@pytest.mark.parametrize("guarantee", ["exact", "numerically-exact"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_freivalds_passes_true_claims_of_both_guarantees(guarantee: str, rounds: int) -> None:
    of = fast(rounds=rounds)
    if guarantee == "exact":
        exact = exact_claim(TRUE).ridge
        ridge = replace(of.ridge, head=exact.head, witness=exact.witness, bound=exact.bound)
        of = replace(of, ridge=ridge)
    report = judge(of, guarantee)
    assert report.result == "PASS"
    assert [c.number for c in report.checks] == [1, 2, 3, 4, 5]
    assert report.checks[0].name == "statistics-freivalds"
    assert report.checks[0].value == of.ridge.statistics_digest
    low, high = report.checks[0].interval or ("", "")
    assert low == "0"
    assert f"pass with probability at most {high}" in str(report.checks[0].threshold)
    assert (2.0**-60) ** rounds < float(high) < (2.0**-59) ** rounds
    for check in report.checks:
        strings = [check.name, check.value, check.threshold, *(check.interval or ())]
        assert all(isinstance(text, str) for text in strings)


def moved(by: float) -> Matrix:
    head = HEAD.copy()
    head[1, 1] += by
    return head


NAN = moved(float("nan"))


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({"head": moved(1e-7)}, [2]),
        ({"head": moved(1e-7), "bound": 1e6}, [2]),
        ({"head": moved(1e-7), "bound": 1e6, "tolerance": 0.9}, []),
        ({"bound": 1e-30}, [2]),
        ({"tolerance": 1e-30}, [2]),
        ({"tolerance": 0.0}, [2]),
        ({"tolerance": 1.0}, [2]),
        ({"tolerance": float("nan")}, [2]),
        ({"tolerance": "1"}, [2]),
        ({"tolerance": None}, [2]),
        ({"bound": float("nan")}, [2]),
        ({"bound": float("inf")}, [2]),
        ({"bound": -1.0}, [2]),
        ({"bound": None}, [2]),
        ({"head": NAN}, [2]),
        ({"head": None}, [2]),
        ({"head": HEAD.astype(np.float32)}, [2]),
        ({"head": HEAD[:, :2]}, [2]),
        ({"head": np.full_like(HEAD, 1e308), "bound": 1e308}, [2]),
        ({"penalty": 0.0}, [1, 2]),
        ({"penalty": 0.25}, [1, 2]),
        ({"exponents": (0,) * 6}, [1, 2]),
        ({"exponents": (2**14,) * 7}, [1, 2]),
        ({"mode": "hopeful"}, []),
    ],
)
def test_odd_claims_fail_and_never_raise(changes: dict[str, Any], numbers: list[int]) -> None:
    report = judge(claim(**changes))
    assert failed(report) == numbers
    assert report.result == ("FAIL" if numbers else "PASS")


def refit_claim(rows: Rows) -> ExactClaim:
    """A provider that publishes the head and statistics of `rows`, consistently."""
    state = METHOD.refit(TRUE.config, [rows]).state
    ridge = ridge_claim(state, TRUE.config)
    return fast(
        head=state.witness.sum(axis=0),
        statistics=told(state.statistics),
        statistics_digest=ridge.statistics_digest,
    )


@pytest.mark.parametrize(
    "rows",
    [TRUE.rows, oracle.without(TRUE.rows, ERASED[:2]), oracle.without(TRUE.rows, [4, 11, 31])],
    ids=["nothing done", "one left", "wrong record"],
)
@pytest.mark.parametrize("mode", ["full", "freivalds"])
def test_the_model_of_other_rows_fails_and_says_how_far_it_is(mode: Mode, rows: Rows) -> None:
    of = refit_claim(rows)
    report = judge(replace(of, ridge=replace(of.ridge, mode=mode)))
    assert failed(report) == [1, 2, 5]
    assert report.result == "FAIL"
    label, nats, unit = report.checks[4].value.split()
    assert (label, unit) == ("KL", "nats")
    assert float(nats) > 0


def planted(part: str, at: tuple[int, int], by: int) -> ExactClaim:
    """Statistics off by `by`, with the digest of just those."""
    gram, moment = TOLD.gram.copy(), TOLD.moment.copy()
    if part == "gram":
        gram[at] += by
        gram[at[::-1]] = gram[at]
    else:
        moment[at] += by
    statistics = RidgeStatistics(gram, moment, TOLD.rows)
    digest = ridge_claim(replace(TRUE.after, statistics=statistics), TRUE.config)
    return fast(statistics=told(statistics), statistics_digest=digest.statistics_digest)


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize(
    ("part", "at"),
    [("gram", (i, j)) for i in range(D) for j in range(i, D)]
    + [("moment", (i, k)) for i in range(D) for k in range(C)],
)
def test_one_wrong_entry_consistently_signed(part: str, at: tuple[int, int], by: int) -> None:
    report = judge(planted(part, at, by))
    assert {1, 2, 5} == set(failed(report))
    assert report.checks[0].value == "the statistics are not those of the retained rows"


ASYMMETRIC = TOLD.gram.copy()
ASYMMETRIC[0, 1] += 1


def published(before: ClaimedStatistics) -> dict[str, Any]:
    """The claim's part about the statistics before, with their own digest."""
    statistics = RidgeStatistics(before.gram.copy(), before.moment.copy(), before.rows)
    config = TRUE.config
    digest = statistics_digest(statistics, config.exponents, config.bits, config.penalty)
    return {"before": before, "before_digest": digest}


@pytest.mark.parametrize(
    ("changes", "numbers", "result"),
    [
        ({"statistics": None}, [1, 2], "INCONCLUSIVE"),
        ({"seed": None}, [1, 2], "INCONCLUSIVE"),
        ({"seed": b"short"}, [1, 2], "INCONCLUSIVE"),
        ({"seed": "0" * 32}, [1, 2], "FAIL"),
        ({"rounds": 0}, [1, 2], "FAIL"),
        ({"rounds": 10**9}, [1, 2], "FAIL"),
        ({"rounds": None}, [1, 2], "FAIL"),
        ({"statistics_digest": "0" * 64}, [1, 2], "FAIL"),
        ({"statistics": BEFORE}, [1, 2, 5], "FAIL"),
        ({"statistics": replace(TOLD, rows=36)}, [1, 2, 5], "FAIL"),
        ({"statistics": replace(TOLD, gram=ASYMMETRIC)}, [1, 2, 5], "FAIL"),
        ({"statistics": replace(TOLD, gram=TOLD.gram.astype(float))}, [1, 2, 5], "FAIL"),
        ({"statistics": replace(TOLD, moment=TOLD.moment[:, :1])}, [1, 2, 5], "FAIL"),
        ({"statistics": replace(TOLD, gram=None)}, [1, 2, 5], "FAIL"),  # type: ignore[arg-type]
        ({"statistics": replace(TOLD, gram=np.full((D, D), -(2**63)))}, [1, 2, 5], "FAIL"),
        ({"statistics": "secret"}, [1, 2, 5], "FAIL"),
        ({"noise": 0.0}, [5], "FAIL"),
        ({"noise": None}, [5], "FAIL"),
        (published(BEFORE), [], "PASS"),
        (published(TOLD), [], "PASS"),
        ({"before": BEFORE}, [5], "FAIL"),
        ({"before": BEFORE, "before_digest": "0" * 64}, [5], "FAIL"),
        (published(replace(BEFORE, rows=3)), [5], "FAIL"),
        (published(replace(BEFORE, gram=BEFORE.gram // 2)), [5], "FAIL"),
        (published(replace(BEFORE, gram=ASYMMETRIC)), [5], "FAIL"),
    ],
)
def test_odd_claimed_statistics(
    changes: dict[str, Any], numbers: list[int], result: str
) -> None:
    report = judge(fast(**changes))
    assert failed(report) == numbers
    assert report.result == result
    assert "secret" not in repr(report)


def test_a_wrong_head_is_refuted_by_statistics_that_were_only_tested() -> None:
    assert failed(judge(fast(head=moved(1e-7)))) == [2]


ROWS: list[Callable[[], Rows]] = [
    lambda: Rows(np.zeros((37, 3), np.int16), np.zeros(37, np.int64)),
    lambda: Rows(TRUE.retained.codes, TRUE.retained.labels + 7),
    lambda: Rows(np.full_like(TRUE.retained.codes, -32768), TRUE.retained.labels),
    lambda: Rows(TRUE.retained.codes, np.roll(TRUE.retained.labels, 1)),
    lambda: Rows(TRUE.retained.codes[:0], TRUE.retained.labels[:0]),
]


@pytest.mark.parametrize("rows", ROWS, ids=["columns", "labels", "code", "relabelled", "none"])
def test_other_rows_fail(rows: Callable[[], Rows]) -> None:
    report = judge(with_rows(fast(), rows()))
    assert {1, 2, 5} <= set(failed(report))
    assert report.result == "FAIL"


@pytest.mark.parametrize("by", [-1, 1])
def test_a_row_count_consistently_signed(by: int) -> None:
    statistics = replace(TRUE.after.statistics, rows=TOLD.rows + by)
    ridge = ridge_claim(replace(TRUE.after, statistics=statistics), TRUE.config)
    of = fast(statistics=told(statistics), statistics_digest=ridge.statistics_digest)
    report = judge(of)
    assert failed(report) == [1, 2, 5]
    assert report.checks[0].value == "the claimed number of rows is not the number stored"
    assert report.checks[4].value == "another number of rows"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (
            Rows(TRUE.retained.codes // 2 - 16384, TRUE.retained.labels),
            "a code exceeds 16 bits",
        ),
        (
            Rows(TRUE.retained.codes, TRUE.retained.labels - C),
            "a label lies outside the classes",
        ),
        (
            Rows(TRUE.retained.codes, TRUE.retained.labels + C),
            "a label lies outside the classes",
        ),
    ],
)
def test_rows_out_of_range_are_refused_before_they_are_tested(rows: Rows, reason: str) -> None:
    codes = rows.codes.copy()
    codes[0, 0] = -32768 if "code" in reason else codes[0, 0]
    report = judge(with_rows(fast(), Rows(codes, rows.labels)))
    assert failed(report) == [1, 2, 5]
    assert report.checks[0].value == reason
