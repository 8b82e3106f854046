"""The random test of claimed statistics: true ones always pass, wrong ones almost never."""

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.methods.ridge.oracle import only, python_gram, random_rows
from workers.arrays import IntMatrix, Rows
from workers.judge.ridge import freivalds
from workers.judge.ridge.claim import ClaimedStatistics
from workers.judge.ridge.freivalds import (
    GAPS,
    GROUP,
    MAX_DIMENSION,
    MOST_PENDING,
    PRIMES,
    SUFFICIENT,
    Answering,
    Challenge,
    answer_of_claim,
    draw,
    error_probability,
    joined,
    suffices,
)

SEED = hashlib.sha256(b"drawn afterwards").digest()


def claimed(rows: Rows, classes: int) -> ClaimedStatistics:
    gram, moment = python_gram(rows.codes, rows.labels, classes)
    return ClaimedStatistics(np.array(gram), np.array(moment), len(rows))


def column(challenge: Challenge, kept: list[int]) -> Challenge:
    return Challenge(
        challenge.features[:, kept], challenge.classes[:, kept], challenge.gaps[kept]
    )


def answer_of_rows(blocks: Iterable[Rows], challenge: Challenge) -> list[int]:
    with Answering(challenge, 16) as answering:
        for rows in blocks:
            answering.take(rows)
        return answering.result()


def passes(rows: Rows, statistics: ClaimedStatistics, challenge: Challenge) -> bool:
    return answer_of_rows([rows], challenge) == answer_of_claim(statistics, challenge)


def is_prime(n: int) -> bool:
    """Miller and Rabin; these bases decide every n < 2^64 (Sorenson, Webster 2015)."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        powers = [pow(base, odd << i, n) for i in range(twos)]
        if powers[0] != 1 and n - 1 not in powers:
            return False
    return True


def test_the_moduli_are_two_primes_whose_product_no_error_reaches() -> None:
    assert [is_prime(p) for p in PRIMES] == [True, True]
    assert not is_prime(2**61 - 3)
    assert not is_prime(2**61 - 33)
    assert [2**61 - gap for gap in GAPS] == list(PRIMES)
    assert len(set(PRIMES)) == 2
    assert PRIMES[0] * PRIMES[1] > 2**64


def test_the_stated_probability_is_at_least_two_over_the_lesser_prime() -> None:
    assert Fraction(2, min(PRIMES)) < error_probability(1) < Fraction(1, 2**59)
    assert error_probability(3) == error_probability(1) ** 3


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_both_answers_equal_python_integers(n: int, d: int, c: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, n, d, c)
    challenge = draw(rng.bytes(16), "00", d, c, 2)
    want = []
    for k, prime in enumerate(challenge.primes):
        r, t = challenge.features[:, k].tolist(), challenge.classes[:, k].tolist()
        total = 0
        for codes, label in zip(rows.codes.tolist(), rows.labels.tolist(), strict=True):
            inner = sum(q * x for q, x in zip(codes, r, strict=True))
            total += (inner + t[label]) ** 2 - t[label] ** 2
        want.append(total % prime)
    blocks = [only(rows, range(start, n, 3)) for start in range(3)]
    assert answer_of_rows(blocks, challenge) == want
    assert answer_of_claim(claimed(rows, c), challenge) == want


@pytest.mark.parametrize("code", [32767, -32767, 1])
@pytest.mark.parametrize("n", [511, 2049, 9001])
def test_extreme_codes_and_residues_stay_exact(n: int, code: int) -> None:
    codes = np.full((n, 3), code, dtype=np.int16)
    rows = Rows(codes, np.zeros(n, dtype=np.int64))
    largest = np.array([[PRIMES[0] - 1, PRIMES[1] - 1]] * 3)
    challenge = Challenge(largest, largest[:1], np.array(GAPS))
    gram = np.full((3, 3), n * code**2)
    statistics = ClaimedStatistics(gram, np.full((3, 1), n * code), n)
    assert passes(rows, statistics, challenge)
    gram = gram.copy()
    gram[1, 1] -= 1
    assert not passes(rows, replace(statistics, gram=gram), challenge)


def test_no_rows_at_all() -> None:
    statistics = ClaimedStatistics(np.zeros((2, 2), np.int64), np.zeros((2, 3), np.int64), 0)
    challenge = draw(SEED, "00", 2, 3, 1)
    assert answer_of_rows([], challenge) == answer_of_claim(statistics, challenge) == [0, 0]


def test_every_one_of_10000_planted_errors_of_one_is_found() -> None:
    # 10,000 independent challenges; what the rows answer to all of them is one product.
    rng = np.random.default_rng(7)
    d, c, trials = 4, 3, 10_000
    rows = random_rows(rng, 9, d, c)
    true = claimed(rows, c)
    challenge = draw(SEED, "00", d, c, trials)
    answers = answer_of_rows([rows], challenge)
    assert answers == answer_of_claim(true, challenge)
    entries = [("gram", i, j) for i in range(d) for j in range(i, d)]
    entries += [("moment", i, k) for i in range(d) for k in range(c)]
    found = 0
    planted = rng.integers(len(entries), size=trials), rng.choice([-1, 1], size=trials)
    # The trials of one planted error are evaluated together.
    for place, by in {*zip(*(values.tolist() for values in planted), strict=True)}:
        part, i, j = entries[place]
        gram, moment = true.gram.copy(), true.moment.copy()
        if part == "gram":
            gram[i, j] += by
            gram[j, i] = gram[i, j]  # an asymmetric G is refused before
        else:
            moment[i, j] += by
        (here,) = np.nonzero((planted[0] == place) & (planted[1] == by))
        mine = [
            challenged for trial in here.tolist() for challenged in (2 * trial, 2 * trial + 1)
        ]
        wrong = answer_of_claim(
            ClaimedStatistics(gram, moment, true.rows), column(challenge, mine)
        )
        pairs = zip(wrong, (answers[k] for k in mine), strict=True)
        differs = [one != other for one, other in pairs]
        found += sum(a or b for a, b in zip(differs[::2], differs[1::2], strict=True))
    assert found == trials


@pytest.mark.parametrize(("multiple", "kept"), [(PRIMES[0], [1]), (PRIMES[1], [0])])
@pytest.mark.parametrize("part", ["gram", "moment"])
def test_an_error_that_one_prime_cannot_see_is_seen_by_the_other(
    part: str, multiple: int, kept: list[int]
) -> None:
    rows = random_rows(np.random.default_rng(1), 9, 3, 2)
    true = claimed(rows, 2)
    spoilt: IntMatrix = getattr(true, part).copy()
    spoilt[0, 0] += multiple
    wrong = replace(true, **{part: spoilt})  # type: ignore[arg-type]
    challenge = draw(SEED, "00", 3, 2, 1)
    assert passes(rows, wrong, column(challenge, [1 - kept[0]]))  # blind
    assert not passes(rows, wrong, column(challenge, kept))
    assert not passes(rows, wrong, challenge)


def test_an_error_made_for_a_known_seed_is_caught_by_any_other() -> None:
    rows = random_rows(np.random.default_rng(2), 9, 3, 2)
    true = claimed(rows, 2)
    known = column(draw(SEED, "00", 3, 2, 1), [0])
    prime = known.primes[0]
    r0, r1 = (int(known.features[i, 0]) for i in (0, 1))
    gram = true.gram.copy()
    gram[0, 0] += 1
    gram[1, 1] -= r0 * r0 * pow(r1 * r1, -1, prime) % prime
    wrong = replace(true, gram=gram)
    assert passes(rows, wrong, known)
    for other in range(200):
        fresh = draw(SEED + bytes([other]), "00", 3, 2, 1)
        assert not passes(rows, wrong, column(fresh, [0]))
        assert not passes(rows, wrong, fresh)


def test_challenges_differ_by_seed_digest_and_column_and_repeat_otherwise() -> None:
    base = draw(SEED, "00", 3, 2, 2)
    assert np.array_equal(base.features, draw(SEED, "00", 3, 2, 2).features)
    others = [draw(SEED, "01", 3, 2, 2), draw(SEED[:-1], "00", 3, 2, 2)]
    for other in others:
        assert not (base.features == other.features).any()
    assert len(set(base.features.ravel().tolist() + base.classes.ravel().tolist())) == 20
    assert (base.features >= 0).all()
    assert (base.features < 2**61 - base.gaps).all()


@pytest.mark.parametrize("extreme", [2**50, -(2**50), 1, -1, 0])
def test_limbs_are_joined_modulo_each_prime(extreme: int) -> None:
    rng = np.random.default_rng(5)
    sums = rng.integers(-(2**50), 2**50, size=(500, 6))
    sums[:, :2] = extreme  # the lowest limb, once the two above it have been reduced
    sums[:300, 2:] = rng.integers(-2, 3, size=(300, 4)) << 40
    want = [
        [
            sum(int(row[2 * place + k]) << (21 * place) for place in range(3)) % PRIMES[k]
            for k in (0, 1)
        ]
        for row in sums
    ]
    assert joined(sums, np.array(GAPS)).tolist() == want


@pytest.mark.parametrize("cuts", [(1, 7, 7), (GROUP, GROUP + 1), (3 * GROUP,), ()])
def test_how_rows_are_cut_does_not_show(cuts: tuple[int, ...]) -> None:
    rows = random_rows(np.random.default_rng(6), 3 * GROUP + 5, 2, 2)
    challenge = draw(SEED, "00", 2, 2, 1)
    ends = [0, *cuts, len(rows)]
    blocks = [only(rows, range(i, j)) for i, j in pairwise(ends)]
    assert answer_of_rows(blocks, challenge) == answer_of_claim(claimed(rows, 2), challenge)


def test_few_groups_of_rows_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with the rows, however fast they are read."""
    rows = random_rows(np.random.default_rng(6), GROUP, 1, 2)
    slow, most = threading.Event(), 0
    monkeypatch.setattr(freivalds, "check_values", lambda *_: slow.wait(0.01))
    with Answering(draw(SEED, "00", 1, 2, 1), 16) as answering:
        for _ in range(4 * MOST_PENDING):
            answering.take(rows)
            most = max(most, answering.pending)
    assert most == MOST_PENDING


def test_the_test_suffices_where_its_bound_holds() -> None:
    assert suffices(1)
    assert suffices(MAX_DIMENSION)
    assert not suffices(MAX_DIMENSION + 1)
    assert not suffices(64, rounds=0)
    assert error_probability(1) < SUFFICIENT
