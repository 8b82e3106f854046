"""Check 1 on messages: a message left in, dropped or changed by one integer is found."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzz
from tests.workers.judge.claims import (
    ERASED,
    C,
    D,
    N,
    erasure,
    exact_claim,
    ridge_claim,
    unseen,
)
from tests.workers.methods.ridge import oracle
from workers.arrays import Rows
from workers.judge import registry
from workers.judge.base import Report
from workers.judge.ridge.claim import ClaimedStatistics, ExactClaim, RidgeClaim
from workers.judge.ridge.head import prove, proven_bound
from workers.judge.ridge.posterior import check_definite, least_eigenvalue
from workers.judge.ridge.statistics import Recomputed, UnusableRowsError
from workers.judge.ridge.verdict import resum
from workers.methods.ridge.base import RidgeConfig
from workers.methods.ridge.canonical_head import canonical_head
from workers.methods.ridge.ridge_exact import METHOD
from workers.methods.ridge.ridge_system import sufficient_penalty
from workers.methods.ridge.ridge_woodbury import METHOD as WOODBURY
from workers.methods.ridge.statistics.gram import RidgeStatistics

VERIFIER = registry.get("exact")
TRUE = erasure(unseen=True)
CLIENTS = 5


def message_of(rows: Rows) -> ClaimedStatistics:
    """By Python's integers, independently of the code under test."""
    gram, moment = oracle.python_gram(rows.codes, rows.labels, C)
    return ClaimedStatistics(np.array(gram), np.array(moment), len(rows))


MESSAGES = [
    message_of(oracle.only(TRUE.retained, range(start, len(TRUE.retained), CLIENTS)))
    for start in range(CLIENTS)
]
FORGOTTEN = message_of(oracle.only(TRUE.rows, ERASED))


def claim_of(messages: Sequence[ClaimedStatistics]) -> ExactClaim:
    return unseen(exact_claim(TRUE), messages)


def failed(report: Report) -> list[int]:
    return [check.number for check in report.checks if not check.passed]


def with_posterior(claim: ExactClaim, after: RidgeStatistics) -> ExactClaim:
    claimed = ClaimedStatistics(after.gram, after.moment, after.rows)
    return replace(claim, ridge=replace(claim.ridge, statistics=claimed))


def test_a_true_claim_passes_and_says_that_messages_were_summed() -> None:
    report = VERIFIER.verify(claim_of(MESSAGES))
    assert report.result == "PASS"
    assert report.checks[0].name == "statistics-resummed"
    assert report.checks[0].value == TRUE_DIGEST
    assert VERIFIER.verify(claim_of(MESSAGES[::-1])).result == "PASS"
    with_five = VERIFIER.verify(with_posterior(claim_of(MESSAGES), TRUE.after.statistics))
    assert (with_five.result, len(with_five.checks)) == ("PASS", 5)


TRUE_DIGEST = exact_claim(TRUE).ridge.statistics_digest


def test_the_mode_does_not_matter() -> None:
    claim = claim_of(MESSAGES)
    claim = replace(claim, ridge=replace(claim.ridge, mode="freivalds"))
    report = VERIFIER.verify(claim)
    assert (report.result, report.checks[0].name) == ("PASS", "statistics-resummed")


@pytest.mark.parametrize(
    ("messages", "wrong"),
    [
        ([*MESSAGES, FORGOTTEN], [1, 2, 3]),
        (MESSAGES[1:], [1, 2, 3]),
        ([*MESSAGES, MESSAGES[0]], [1, 2, 3]),
        ([MESSAGES[0], *MESSAGES[:-1]], [1, 2, 3]),
        ([], [1, 2, 3]),
    ],
    ids=["left in", "dropped", "twice", "one for another", "none"],
)
def test_another_set_of_messages(messages: list[ClaimedStatistics], wrong: list[int]) -> None:
    report = VERIFIER.verify(claim_of(messages))
    assert failed(report)[0] == 1
    assert set(failed(report)) <= set(wrong)
    assert report.result == "FAIL"


def changed(
    message: ClaimedStatistics, part: str, at: tuple[int, int], by: int
) -> ClaimedStatistics:
    values = getattr(message, part).copy()
    values[at] += by
    if part == "gram":
        values[at[::-1]] = values[at]
    return replace(message, **{part: values})


@given(
    st.integers(0, CLIENTS - 1),
    st.integers(0, D - 1),
    st.integers(0, D - 1),
    st.sampled_from(["gram", "moment"]),
    st.sampled_from([-1, 1]),
)
@fuzz(100)
def test_any_entry_of_any_message_off_by_one(
    which: int, i: int, j: int, part: str, by: int
) -> None:
    at = (i, j) if part == "gram" else (i, j % C)
    messages = list(MESSAGES)
    messages[which] = changed(messages[which], part, at, by)
    report = VERIFIER.verify(claim_of(messages))
    assert 1 in failed(report)
    assert report.result == "FAIL"


@pytest.mark.parametrize("by", [-1, 1])
def test_the_number_of_rows_off_by_one(by: int) -> None:
    messages = [replace(MESSAGES[0], rows=MESSAGES[0].rows + by), *MESSAGES[1:]]
    assert failed(VERIFIER.verify(claim_of(messages))) == [1, 3]


def test_a_provider_who_never_removed_the_message() -> None:
    before = METHOD.refit(TRUE.config, [TRUE.rows]).state
    claim = replace(claim_of(MESSAGES), ridge=ridge_claim(before, TRUE.config))
    assert failed(VERIFIER.verify(claim)) == [1, 2]
    # Kept in the sum as well, consistently: the records contradict it.
    claim = replace(claim, messages=[*MESSAGES, FORGOTTEN])
    report = VERIFIER.verify(claim)
    assert failed(report) == [3]
    assert f"{N} rows are stored for" in report.checks[2].value


LARGE = np.full((D, D), 2**62, dtype=np.int64)
ODD: list[tuple[str, object, str]] = [
    ("rows beside", None, "rows beside the messages"),
    ("none of them", [None], "cannot be evaluated"),
    ("asymmetric", replace(MESSAGES[0], gram=np.triu(MESSAGES[0].gram)), "not symmetric"),
    (
        "float64",
        replace(MESSAGES[0], gram=MESSAGES[0].gram.astype(float)),
        "another shape or type",
    ),
    ("columns", replace(MESSAGES[0], gram=MESSAGES[0].gram[:2, :2]), "another shape"),
    ("classes", replace(MESSAGES[0], moment=MESSAGES[0].moment[:, :1]), "another shape"),
    ("rows below 0", replace(MESSAGES[0], rows=-1), "no number of rows"),
    ("rows of float", replace(MESSAGES[0], rows=8.0), "no number of rows"),  # type: ignore[arg-type]
    ("entries too large", replace(MESSAGES[0], gram=LARGE), "larger entries"),
    ("sums too large", replace(MESSAGES[0], rows=2**40), "larger entries"),
]


@pytest.mark.parametrize(("message", "reason"), [o[1:] for o in ODD], ids=[o[0] for o in ODD])
def test_odd_messages_fail_and_never_raise(message: object, reason: str) -> None:
    claim = claim_of([message, *MESSAGES[1:]])  # type: ignore[list-item]
    if message is None:
        claim = replace(claim_of(MESSAGES), rows=exact_claim(TRUE).rows)
    claim = with_posterior(claim, TRUE.after.statistics)
    report = VERIFIER.verify(claim)
    assert {1, 2, 5} <= set(failed(report))
    assert reason in report.checks[0].value
    assert report.result == "FAIL"


def test_a_sum_that_no_rows_have_is_no_ground_for_a_bound() -> None:
    # Consistent in everything, but G has a negative eigenvalue: λ bounds nothing from below.
    rows = TRUE.after.statistics.rows
    gram = TRUE.after.statistics.gram.copy()
    gram[0, 1] = gram[1, 0] = 1 + int(np.sqrt(float(gram[0, 0]) * float(gram[1, 1])))
    statistics = RidgeStatistics(gram, TRUE.after.statistics.moment, rows)
    claim = ridge_claim(replace(TRUE.after, statistics=statistics), TRUE.config)
    forged = ClaimedStatistics(gram, statistics.moment, rows)
    report = VERIFIER.verify(replace(claim_of([forged]), ridge=claim))
    assert "the sum is not that of any rows" in report.checks[0].value
    # By the clients' statement it might be a sketch, but then nothing is exact.
    report = VERIFIER.verify(replace(claim_of([forged]), ridge=replace(claim, attested=1.0)))
    assert report.checks[0].passed
    assert "sketches only" in report.checks[1].value


def test_a_bound_holds_where_rounding_hides_that_no_rows_have_the_sum() -> None:
    # -13 is the square of no code, and float64 does not see it beside 2^52.
    gram = np.array([[2**52, 0], [0, -13]])
    moment = np.array([[5], [7]])
    assert not least_eigenvalue(gram, (0, 0))[1]
    penalty = 2048.0  # the least that a registration takes for such a sum
    check_definite(gram, (0, 0), penalty)
    head = np.array([[moment[0, 0] / (2**52 + penalty)], [0.0]])
    claim = RidgeClaim(2, 1, (0, 0), 16, penalty, "", head, head[None], 1.0)
    distance = Fraction(7, 2048 - 13)
    summed = Recomputed(gram, moment, 2**23, definite=False)
    assert proven_bound(head, claim, replace(summed, definite=True)) < distance
    assert distance < proven_bound(head, claim, summed) < 2 * distance
    assert distance < prove(replace(claim, witness=head[None]), summed).norm() < 2 * distance


def test_a_penalty_within_the_rounding_of_sums_is_refused() -> None:
    gram = np.array([[2**52, 0], [0, -13]])
    with pytest.raises(UnusableRowsError, match="the penalty is too small"):
        check_definite(gram, (0, 0), 32.0)


@pytest.mark.parametrize("d", [3, 100, 700])
def test_a_registered_penalty_suffices_for_the_sums_of_rows(d: int) -> None:
    rng = np.random.default_rng(d)
    codes = rng.integers(-32767, 32768, (d + 20, d))
    codes[:, 1:] = codes[:, :1]  # off the diagonal the sums are as large as they can be
    gram = codes.T @ codes
    seen = RidgeConfig(d, 1, (-15,) * d, 16, 1.0)
    least = sufficient_penalty(gram, replace(seen, unseen=True))
    check_definite(gram, seen.exponents, least)
    assert least >= sufficient_penalty(gram, seen)


def test_a_bound_of_seen_rows_is_too_small_for_sums() -> None:
    seen = METHOD.refit(replace(TRUE.config, unseen=False), [TRUE.retained]).state
    assert np.array_equal(seen.head, TRUE.after.head)
    claim = replace(claim_of(MESSAGES), ridge=ridge_claim(seen, TRUE.config))
    report = VERIFIER.verify(claim)
    assert failed(report) == [2]
    assert "the claimed bound is below the proven" in report.checks[1].value


def test_a_column_of_zeros_with_a_moment_is_that_of_no_rows() -> None:
    # Its weight would have to be 0, and the solution of these statistics is another.
    state = TRUE.after.statistics
    gram, moment = state.gram.copy(), state.moment.copy()
    gram[0], gram[:, 0], moment[0] = 0, 0, 0
    moment[0, 0] = 1
    statistics = RidgeStatistics(gram, moment, state.rows)
    found = canonical_head(statistics, TRUE.config)
    lied = replace(TRUE.after, statistics=statistics, head=found.head, bound=found.bound)
    lied = replace(lied, witness=found.witness)
    claim = ridge_claim(lied, TRUE.config)
    forged = ClaimedStatistics(gram, moment, state.rows)
    report = VERIFIER.verify(replace(claim_of([forged]), ridge=claim))
    assert report.result == "FAIL"
    assert "a column of the sum is 0" in report.checks[0].value


def test_numerically_exact_heads_are_judged_on_messages_too() -> None:
    state = WOODBURY.refit(TRUE.config, [TRUE.retained]).state
    claim = replace(claim_of(MESSAGES), ridge=ridge_claim(state, TRUE.config))
    judge = registry.get("numerically-exact")
    assert judge.verify(claim).result == "PASS"
    assert judge.verify(replace(claim, messages=MESSAGES[1:])).result == "FAIL"
    sketched = replace(claim, ridge=replace(claim.ridge, attested=1e-9))
    assert failed(judge.verify(sketched)) == [2]


def test_the_sum_is_that_of_python_integers_up_to_the_limit() -> None:
    n = (2**63 - 1) // 32767**2 // 2
    top = np.full((1, 1), n * 32767**2, dtype=np.int64)
    half = ClaimedStatistics(top, np.full((1, 1), n * 32767), n)
    summed = resum([half, half], 1, 1, 16)
    assert int(summed.gram[0, 0]) == 2 * n * 32767**2
    assert (int(summed.moment[0, 0]), summed.rows) == (2 * n * 32767, 2 * n)
    with pytest.raises(UnusableRowsError, match="larger entries"):
        resum([half, half, half], 1, 1, 16)


BEFORE = METHOD.refit(TRUE.config, [TRUE.rows]).state


@pytest.mark.parametrize(
    ("digest", "passed"),
    [
        (ridge_claim(BEFORE, TRUE.config).statistics_digest, True),
        (None, False),
        ("0" * 64, False),
    ],
    ids=["its own", "none", "another"],
)
def test_statistics_before_are_those_of_their_published_digest(
    digest: str | None, passed: bool
) -> None:
    of = BEFORE.statistics
    claim = with_posterior(claim_of(MESSAGES), TRUE.after.statistics)
    claim = replace(
        claim,
        ridge=replace(
            claim.ridge,
            before=ClaimedStatistics(of.gram, of.moment, of.rows),
            before_digest=digest,
        ),
    )
    report = VERIFIER.verify(claim)
    assert report.checks[4].passed is passed
    text = "eigenvalues of G before - G after" if passed else "their published digest"
    assert text in report.checks[4].value
