"""A judge must catch every error: each claim here differs from a true one in one thing."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.workers.judge.claims import (
    ERASED,
    RETAINED,
    C,
    D,
    Erasure,
    N,
    block,
    commitment,
    content,
    erasure,
    exact_claim,
    ridge_claim,
    sets,
    with_rows,
)
from tests.workers.methods.ridge import oracle
from workers.arrays import Matrix, Rows
from workers.errors import RefusedError
from workers.judge import registry
from workers.judge.base import Probe, Report
from workers.judge.ridge.claim import BlockClaim, ExactClaim
from workers.methods.ridge.base import RidgeState
from workers.methods.ridge.ridge_exact import METHOD
from workers.methods.ridge.statistics.gram import RidgeStatistics, statistics_digest

VERIFIER = registry.get("exact")
TRUE = erasure()


def judge(claim: ExactClaim) -> Report:
    return VERIFIER.verify(claim)


def failed(report: Report) -> list[int]:
    return [check.number for check in report.checks if not check.passed]


def with_statistics(of: Erasure, part: str, at: tuple[int, int], by: int) -> ExactClaim:
    """A provider whose G or C is off by `by` in one place, consistently signed."""
    gram, moment = of.after.statistics.gram.copy(), of.after.statistics.moment.copy()
    if part == "gram":
        gram[at] += by
        gram[at[::-1]] = gram[at]
    else:
        moment[at] += by
    statistics = RidgeStatistics(gram, moment, of.after.statistics.rows)
    state = RidgeState(statistics, of.after.head, of.after.witness, of.after.bound)
    claim = exact_claim(of)
    return replace(claim, ridge=ridge_claim(state, of.config))


def one_ulp(entry: tuple[int, int], direction: float) -> ExactClaim:
    head = TRUE.after.head.copy()
    head[entry] = np.nextafter(head[entry], np.float32(direction))
    claim = exact_claim(TRUE)
    return replace(claim, ridge=replace(claim.ridge, head=head))


def state_of(rows: Rows) -> ExactClaim:
    """A provider that publishes the model of `rows` instead of the retained ones."""
    state = METHOD.refit(TRUE.config, [rows]).state
    return replace(exact_claim(TRUE), ridge=ridge_claim(state, TRUE.config))


def ridge(**changes: object) -> ExactClaim:
    claim = exact_claim(TRUE)
    return replace(claim, ridge=replace(claim.ridge, **changes))  # type: ignore[arg-type]


def kept(**changes: object) -> ExactClaim:
    claim = exact_claim(TRUE)
    [own] = claim.removals
    link = replace(own.link, **changes)  # type: ignore[arg-type]
    return replace(claim, removals=[replace(own, link=link)])


def purged(**changes: object) -> ExactClaim:
    claim = exact_claim(TRUE)
    [own] = claim.removals
    purge = replace(own.purge, **changes)  # type: ignore[arg-type]
    return replace(claim, removals=[replace(own, purge=purge)])


def test_a_true_claim_passes_all_four_checks_in_order() -> None:
    report = judge(exact_claim(TRUE))
    assert report.result == "PASS"
    assert [(check.number, check.name) for check in report.checks] == [
        (1, "statistics-recomputed"),
        (2, "head-correctly-rounded"),
        (3, "retained-set"),
        (4, "purge"),
    ]
    for check in report.checks:
        strings = [check.name, check.value, check.threshold, *(check.interval or ())]
        assert all(isinstance(text, str) for text in strings)
    low, high = report.checks[1].interval or ("", "")
    assert low == "0"
    assert 0 < float(high) < 1.01 * TRUE.after.bound  # three digits, rounded up


@pytest.mark.parametrize("seed", range(1, 6))
def test_true_claims_pass(seed: int) -> None:
    assert judge(exact_claim(erasure(seed))).result == "PASS"


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("at", [(0, 0), (0, 6), (3, 5), (6, 6)])
def test_one_entry_of_g_off_by_one(at: tuple[int, int], by: int) -> None:
    assert 1 in failed(judge(with_statistics(TRUE, "gram", at, by)))


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("at", [(0, 0), (6, 2)])
def test_one_entry_of_c_off_by_one(at: tuple[int, int], by: int) -> None:
    assert 1 in failed(judge(with_statistics(TRUE, "moment", at, by)))


def test_the_row_count_off_by_one() -> None:
    statistics = replace(TRUE.after.statistics, rows=TRUE.after.statistics.rows + 1)
    state = replace(TRUE.after, statistics=statistics)
    claim = replace(exact_claim(TRUE), ridge=ridge_claim(state, TRUE.config))
    assert failed(judge(claim)) == [1]


@pytest.mark.parametrize("direction", [-np.inf, np.inf])
@pytest.mark.parametrize("row", [i for i in range(D)])
@pytest.mark.parametrize("column", [i for i in range(C)])
def test_a_head_off_by_one_ulp_anywhere(row: int, column: int, direction: float) -> None:
    report = judge(one_ulp((row, column), direction))
    assert failed(report) == [2]
    assert report.result == "FAIL"


def test_a_zero_spelled_minus_zero() -> None:
    head = TRUE.after.head.copy()
    head[2, 0] = np.float32(-0.0)
    assert failed(judge(ridge(head=head))) == [2]


def test_one_record_left_in_the_model() -> None:
    claim = state_of(oracle.without(TRUE.rows, ERASED[:2]))
    assert failed(judge(claim)) == [1, 2]


def test_nothing_done_at_all() -> None:
    assert failed(judge(state_of(TRUE.rows))) == [1, 2]


def test_the_wrong_record_removed() -> None:
    assert failed(judge(state_of(oracle.without(TRUE.rows, [4, 11, 31])))) == [1, 2]


def test_a_record_dropped_silently_from_model_and_store() -> None:
    # Model and stored rows agree, but the retained set still lists the record.
    fewer = oracle.without(TRUE.retained, [0])
    claim = replace(state_of(fewer), rows=[block(fewer, RETAINED[1:])])
    report = judge(claim)
    assert failed(report) == [3]
    assert "36 rows are stored for 37" in report.checks[2].value


def test_a_record_relabelled() -> None:
    labels = TRUE.retained.labels.copy()
    labels[0] = (labels[0] + 1) % C
    assert failed(judge(state_of(Rows(TRUE.retained.codes, labels)))) == [1, 2]


def test_an_old_head_with_true_statistics() -> None:
    before = METHOD.refit(TRUE.config, [TRUE.rows]).state
    claim = ridge(head=before.head, witness=before.witness, bound=before.bound)
    assert failed(judge(claim)) == [2]


def test_a_forged_witness_that_rounds_to_a_forged_head() -> None:
    witness = TRUE.after.witness.copy()
    witness[0, 1, 1] += 1e-6
    claim = ridge(witness=witness, head=witness.sum(axis=0).astype(np.float32) + np.float32(0))
    assert failed(judge(claim)) == [2]


@pytest.mark.parametrize(
    "witness",
    [TRUE.after.head.astype(np.float64)[None], np.full_like(TRUE.after.witness, 1e308)],
    ids=["the head itself", "far away"],
)
def test_a_coarse_witness_is_undecided_not_refuted(witness: Matrix) -> None:
    report = judge(ridge(witness=witness, bound=1.0))
    assert failed(report) == [2]
    assert report.result == "INCONCLUSIVE"


def test_a_bound_claimed_below_what_is_proven() -> None:
    report = judge(ridge(bound=float(TRUE.after.bound) / 1e6))
    assert failed(report) == [2]
    assert "below the proven" in report.checks[1].value


NAN_WITNESS = TRUE.after.witness.copy()
NAN_WITNESS[0, 0, 0] = np.nan
NAN_HEAD = TRUE.after.head.copy()
NAN_HEAD[0, 0] = np.nan
SUBNORMAL_HEAD = TRUE.after.head.copy()
SUBNORMAL_HEAD[2, 0] = np.float32(1e-40)


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({"head": NAN_HEAD}, [2]),
        ({"head": SUBNORMAL_HEAD}, [2]),
        ({"head": TRUE.after.head.astype(np.float64)}, [2]),
        ({"head": TRUE.after.head[:, :2]}, [2]),
        ({"head": None}, [2]),
        ({"witness": NAN_WITNESS}, [2]),
        ({"witness": TRUE.after.witness[:0]}, [2]),
        ({"witness": np.repeat(TRUE.after.witness, 99, axis=0)}, [2]),
        ({"witness": TRUE.after.witness[0]}, [2]),
        ({"witness": TRUE.after.witness.astype(np.float32)}, [2]),
        ({"witness": None}, [2]),
        ({"bound": float("nan")}, [2]),
        ({"bound": float("inf")}, [2]),
        ({"bound": None}, [2]),
        ({"penalty": float("nan")}, [1, 2]),
        ({"penalty": 0.0}, [1, 2]),
        ({"penalty": -0.3}, [1, 2]),
        ({"penalty": "0.3"}, [1, 2]),
        ({"penalty": 0.25}, [1, 2]),
        ({"bits": 8}, [1, 2]),
        ({"bits": 99}, [1, 2]),
        ({"bits": None}, [1, 2]),
        ({"dimension": 8}, [1, 2]),
        ({"dimension": -1}, [1, 2]),
        ({"classes": 2}, [1, 2]),
        ({"classes": 4}, [1, 2]),
        ({"exponents": (0,) * 7}, [1, 2]),
        ({"exponents": (0,) * 6}, [1, 2]),
        ({"exponents": (2**40,) * 7}, [1, 2]),
        ({"exponents": None}, [1, 2]),
        ({"statistics_digest": ""}, [1]),
        ({"statistics_digest": None}, [1]),
        ({"statistics_digest": "0" * 64}, [1]),
    ],
)
def test_odd_ridge_claims_fail_and_never_raise(
    changes: dict[str, object], numbers: list[int]
) -> None:
    report = judge(ridge(**changes))
    assert failed(report) == numbers
    assert report.result == "FAIL"


LINK = exact_claim(TRUE).removals[0].link


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"erased": []}, "no erased record"),
        ({"erased": [LINK.erased[0], *LINK.erased]}, "named twice"),
        ({"erased": [*LINK.erased[:2], ("4", *LINK.erased[2][1:])]}, "named twice"),
        ({"erased": [*LINK.erased[:2], ("99", *LINK.erased[2][1:])]}, "of its commitment"),
        ({"erased": LINK.erased[:2]}, "other records"),
        ({"later": [commitment(0)]}, "other records"),
        ({"later": [commitment(4)]}, "twice in one update"),
        ({"later": [b"short"]}, "not 32 bytes"),
        ({"earlier": ["0" * 32]}, "not 32 bytes"),
        ({"before_count": 41}, "count"),
        ({"after_count": 36}, "count"),
        ({"before_root": bytes(32)}, "root of before"),
        ({"after_root": bytes(32)}, "root of after"),
        ({"after_root": None}, "root of after"),
        ({"earlier": None}, "cannot be evaluated: TypeError"),
        ({"erased": [[1]]}, "cannot be evaluated: ValueError"),
    ],
)
def test_spoiled_links_fail(changes: dict[str, object], reason: str) -> None:
    report = judge(kept(**changes))
    assert failed(report) == [3]
    assert reason in report.checks[2].value
    assert report.result == "FAIL"


READABLE = Probe("head", "ab" * 32, True)
GONE = Probe("head", "ab" * 32, False)


@pytest.mark.parametrize(
    ("changes", "result"),
    [
        ({"probes": [GONE, READABLE]}, "FAIL"),
        ({"probes": [Probe("head", "ab" * 32, None)]}, "FAIL"),  # type: ignore[arg-type]
        ({"probes": None}, "FAIL"),
        ({"retained_rows": ["4", "5"]}, "FAIL"),
        ({"probes": []}, "INCONCLUSIVE"),
        ({"erased_rows": []}, "INCONCLUSIVE"),
        ({"erased_rows": [], "probes": [READABLE]}, "FAIL"),
    ],
    ids=["readable", "unknown", "missing", "row stored", "no probe", "no row", "both"],
)
def test_spoiled_purges_fail(changes: dict[str, object], result: str) -> None:
    report = judge(purged(**changes))
    assert failed(report) == [4]
    assert report.result == result


@pytest.mark.parametrize("rows", [None, [None]], ids=["none", "a none"])
def test_no_rows_at_all_fail_and_never_raise(rows: list[BlockClaim]) -> None:
    report = judge(replace(exact_claim(TRUE), rows=rows))
    assert {1, 2} <= set(failed(report))
    assert report.result == "FAIL"


@pytest.mark.parametrize(
    "rows",
    [
        Rows(np.zeros((37, 3), np.int16), np.zeros(37, np.int64)),
        Rows(TRUE.retained.codes, TRUE.retained.labels + 7),
        Rows(TRUE.retained.codes, TRUE.retained.labels - 7),
        Rows(np.full_like(TRUE.retained.codes, -32768), TRUE.retained.labels),
    ],
    ids=["columns", "labels above", "labels below", "code -2^15"],
)
def test_odd_rows_fail_and_never_raise(rows: Rows) -> None:
    report = judge(with_rows(exact_claim(TRUE), rows))
    assert failed(report) == [1, 2]
    assert report.result == "FAIL"


def test_no_personal_data_is_echoed() -> None:
    secret = "Ada Lovelace"
    spoilt: list[Callable[[], ExactClaim]] = [
        lambda: ridge(penalty=secret),
        lambda: ridge(statistics_digest=secret),
        lambda: kept(erased=[(secret, secret, secret)]),
        lambda: kept(erased=[(secret, bytes(32), commitment(4)), *LINK.erased[1:]]),
        lambda: purged(erased_rows=[secret], retained_rows=[secret]),
        lambda: purged(probes=[Probe(secret, secret, True)]),
    ]
    for make in spoilt:
        report = judge(make())
        assert report.result == "FAIL"
        assert secret not in repr(report)


def test_erasing_everything_can_be_judged() -> None:
    empty = METHOD.forget(
        TRUE.config, METHOD.refit(TRUE.config, [TRUE.rows]).state, TRUE.rows
    ).state
    everyone = {row: content(row, TRUE.rows, row) for row in range(N)}
    chain, link = sets({}, everyone)
    claim = replace(
        exact_claim(TRUE),
        ridge=ridge_claim(empty, TRUE.config),
        rows=[],
        chain=chain,
        removals=[replace(exact_claim(TRUE).removals[0], link=link)],
    )
    assert judge(claim).result == "PASS"


def test_blocks_of_rows_do_not_show() -> None:
    singles = [
        block(oracle.only(TRUE.retained, [place]), [row]) for place, row in enumerate(RETAINED)
    ]
    assert judge(replace(exact_claim(TRUE), rows=singles)).result == "PASS"


def test_the_registry_knows_it_by_name() -> None:
    assert {"exact", "numerically-exact"} <= set(registry.known())
    with pytest.raises(RefusedError, match="exact"):
        registry.get("hopeful")


def test_the_digest_is_spelled_alike_on_both_sides() -> None:
    config = TRUE.config
    digest = statistics_digest(
        TRUE.after.statistics, config.exponents, config.bits, config.penalty
    )
    assert judge(exact_claim(TRUE)).checks[0].value == digest
