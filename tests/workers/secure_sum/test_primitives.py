"""Masks, shares, keys and vectors against other implementations of the same mathematics."""

import hashlib
import hmac
import random
import re

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.secure_sum.rounds import plan_of
from workers.secure_sum.errors import (
    ForgedMessageError,
    MaskMismatchError,
    PlanError,
    TooFewSurvivorsError,
    WrongLengthError,
)
from workers.secure_sum.keys import Secrets, derive
from workers.secure_sum.plan import RoundPlan, least_threshold, parse_plan
from workers.secure_sum.shares import combine, split
from workers.secure_sum.signing import check, parse_roster, sign
from workers.secure_sum.vector import CHUNK, Sums, add_mask, from_vector, to_vector


def field_product(a: int, b: int) -> int:
    """GF(2^128) by school multiplication, modulo x^128 + x^7 + x^2 + x + 1."""
    product = 0
    for bit in range(128):
        if b >> bit & 1:
            product ^= a << bit
    for bit in range(254, 127, -1):
        if product >> bit & 1:
            product ^= ((1 << 128) | 0x87) << (bit - 128)
    return product


def field_inverse(a: int) -> int:
    """a^(2^128 - 2)."""
    result, power = 1, a
    for _ in range(127):
        power = field_product(power, power)
        result = field_product(result, power)
    return result


def interpolate(points: dict[int, int]) -> int:
    """Lagrange at zero."""
    total = 0
    for x, y in points.items():
        factor = 1
        for other in points:
            if other != x:
                factor = field_product(factor, field_product(other, field_inverse(x ^ other)))
        total ^= field_product(y, factor)
    return total


def test_shares_are_points_of_one_polynomial_of_the_right_degree() -> None:
    plan = plan_of(5, 3)
    secret = bytes(range(16))
    points = {plan.index(n): int.from_bytes(s) for n, s in split(plan, secret).items()}
    assert interpolate({x: points[x] for x in (1, 3, 5)}) == int.from_bytes(secret)
    assert interpolate({x: points[x] for x in (2, 3, 4)}) == int.from_bytes(secret)
    assert interpolate({x: points[x] for x in (1, 3)}) != int.from_bytes(secret)
    # p - p(0) vanishes at 0 too: the points lie on a polynomial of degree 2, not 4.
    assert interpolate({x: points[x] ^ int.from_bytes(secret) for x in (1, 2, 5)}) == 0


def test_any_threshold_of_shares_makes_the_secret_and_fewer_make_nothing() -> None:
    plan = plan_of(5, 4)
    secret = random.Random(1).randbytes(16)
    shares = split(plan, secret)
    assert combine(plan, shares, secret.__eq__, set()) == secret
    del shares["member-0"]
    assert combine(plan, shares, secret.__eq__, set()) == secret
    del shares["member-3"]
    with pytest.raises(TooFewSurvivorsError):
        combine(plan, shares, lambda _: True, set())


def test_a_share_at_anothers_place_is_wrong() -> None:
    plan = plan_of(3, 2)
    secret = bytes(15) + b"\x01"
    shares = split(plan, secret)
    shares["member-0"], shares["member-1"] = shares["member-1"], shares["member-0"]
    del shares["member-2"]
    with pytest.raises(MaskMismatchError):
        combine(plan, shares, secret.__eq__, set())


@pytest.mark.parametrize("size", [0, 15, 17])
def test_shares_and_secrets_of_other_lengths(size: int) -> None:
    plan = plan_of(2, 2)
    with pytest.raises(WrongLengthError):
        split(plan, bytes(size))
    with pytest.raises(WrongLengthError):
        combine(plan, {"member-0": bytes(size), "member-1": bytes(16)}, lambda _: True, set())


def chacha20(key: bytes, words: int) -> list[int]:
    """The key stream of RFC 8439 section 2.3 with counter and nonce zero, as uint64."""

    def rotate(value: int, by: int) -> int:
        return (value << by | value >> (32 - by)) & 0xFFFFFFFF

    def quarter(s: list[int], a: int, b: int, c: int, d: int) -> None:
        for x, y, z, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[x] = (s[x] + s[y]) & 0xFFFFFFFF
            s[z] = rotate(s[z] ^ s[x], by)

    stream = b""
    block = 0
    while len(stream) < 8 * words:
        start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574]
        start += [int.from_bytes(key[i : i + 4], "little") for i in range(0, 32, 4)]
        start += [block, 0, 0, 0]
        state = list(start)
        for _ in range(10):
            for column in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)):
                quarter(state, *column)
            for diagonal in ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
                quarter(state, *diagonal)
        for one, two in zip(state, start, strict=True):
            stream += ((one + two) & 0xFFFFFFFF).to_bytes(4, "little")
        block += 1
    return [int.from_bytes(stream[i : i + 8], "little") for i in range(0, 8 * words, 8)]


def test_a_mask_is_the_chacha20_key_stream() -> None:
    key = bytes(range(32))
    vector = np.zeros(50, dtype=np.uint64)
    add_mask(vector, key, +1)
    assert [int(value) for value in vector] == chacha20(key, 50)


def test_a_mask_does_not_depend_on_how_it_is_cut() -> None:
    key = bytes(32)
    long = np.zeros(CHUNK + 7, dtype=np.uint64)
    add_mask(long, key, +1)
    short = np.zeros(CHUNK - 5, dtype=np.uint64)
    add_mask(short, key, +1)
    assert np.array_equal(long[: CHUNK - 5], short)
    assert len(np.unique(long)) == len(long)
    add_mask(long, key, -1)
    assert not long.any()


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """RFC 5869 for 32 bytes of SHA-256: extract, then one block of expand."""
    extracted = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def test_keys_are_hkdf_over_plan_purpose_and_parties() -> None:
    plan = plan_of(3, 2)
    info = b"".join(
        len(part).to_bytes(4, "big") + part
        for part in (b"lethe/masked-round/v1", b"pair mask", b"a", b"b")
    )
    assert derive(b"secret", plan, "pair mask", "a", "b") == hkdf(b"secret", plan.digest, info)


def test_no_two_uses_share_a_key() -> None:
    plan, other = plan_of(3, 2), plan_of(3, 3)
    uses = [
        derive(bytes(16), plan, "pair mask", "a", "b"),
        derive(bytes(16), plan, "pair mask", "b", "a"),
        derive(bytes(16), plan, "pair mask", "ab", ""),
        derive(bytes(16), plan, "pair mask", "ab"),
        derive(bytes(16), plan, "pair maska", "b"),
        derive(bytes(16), plan, "self mask", "a"),
        derive(bytes(16), plan, "self mask commitment", "a"),
        derive(bytes(16), plan, "mask key", "a"),
        derive(bytes(16), other, "mask key", "a"),
    ]
    assert len(set(uses)) == len(uses)


def test_secrets_are_fresh_and_do_not_print() -> None:
    one, two = Secrets(), Secrets()
    assert len({one.mask_seed, one.self_seed, two.mask_seed, two.self_seed}) == 4
    assert one.mask_seed.hex() not in repr(one)
    assert repr(one.mask_seed) not in repr(one)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**32))
def test_vectors_are_their_sums_and_back(dimension: int, classes: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    half = generator.integers(-(2**63), 2**63, (dimension, dimension), dtype=np.int64)
    gram = np.triu(half) + np.triu(half, 1).T
    moment = generator.integers(-(2**63), 2**63, (dimension, classes), dtype=np.int64)
    counts = generator.integers(-(2**63), 2**63, classes, dtype=np.int64)
    vector = to_vector(Sums(gram, moment, counts, -seed))
    upper = [int(gram[i, j]) for i in range(dimension) for j in range(i, dimension)]
    entries = [*upper, *map(int, moment.ravel()), *map(int, counts), -seed]
    assert [int(v) for v in vector] == [value % 2**64 for value in entries]
    back = from_vector(vector, dimension, classes)
    assert np.array_equal(back.gram, gram)
    assert np.array_equal(back.moment, moment)
    assert np.array_equal(back.counts, counts)
    assert back.rows == -seed


def _sums(gram: tuple[int, ...], moment: tuple[int, ...], counts: int) -> Sums:
    zeros = [np.zeros(shape, dtype=np.int64) for shape in (gram, moment, (counts,))]
    return Sums(zeros[0], zeros[1], zeros[2], 0)


SHAPES = {
    "gram-wide": ((2, 3), (2, 2), 2),
    "gram-small": ((1, 1), (2, 2), 2),
    "counts-long": ((2, 2), (2, 2), 3),
}


@pytest.mark.parametrize(("gram", "moment", "counts"), SHAPES.values(), ids=SHAPES.keys())
def test_parts_of_different_models(
    gram: tuple[int, ...], moment: tuple[int, ...], counts: int
) -> None:
    with pytest.raises(WrongLengthError):
        to_vector(_sums(gram, moment, counts))


def test_a_gram_matrix_that_is_not_symmetric_would_lose_a_half() -> None:
    sums = _sums((2, 2), (2, 2), 2)
    sums.gram[1, 0] = 1
    with pytest.raises(WrongLengthError, match="must be symmetric"):
        to_vector(sums)


@pytest.mark.parametrize("length", [0, 5, 7])
def test_vectors_of_another_length(length: int) -> None:
    with pytest.raises(WrongLengthError):
        from_vector(np.zeros(length, dtype=np.uint64), 1, 2)


@pytest.mark.parametrize(("members", "least"), [(2, 2), (3, 2), (4, 3), (5, 3), (9, 5)])
def test_thresholds_are_strict_majorities(members: int, least: int) -> None:
    assert least_threshold(members) == least
    assert plan_of(members, least).threshold == least
    for threshold in (0, least - 1, members + 1):
        with pytest.raises(PlanError, match=f"is {least} to {members}"):
            plan_of(members, threshold)


def test_a_smaller_threshold_would_let_the_server_open_one_input() -> None:
    """Why 2t > n: with t = 2 of 4, two members each on either side of a lie are enough."""
    members, threshold = 4, 2
    sides = members // 2, members - members // 2
    assert (
        min(sides) >= threshold
    )  # t shares of b from one side, t of the mask key from the other
    for good in range(least_threshold(members), members + 1):
        assert all(min(k, members - k) < good for k in range(members + 1))


PLANS = {
    "id-upper": {"round": "00000000-0000-4000-8000-00000000000A"},
    "id-number": {"round": 1},
    "configuration-short": {"configuration": "ab"},
    "version-negative": {"version": -1},
    "version-true": {"version": True},
    "dimension-zero": {"dimension": 0},
    "classes-huge": {"classes": 10_001},
    "one-member": {"members": ["a"], "threshold": 1},
    "members-unsorted": {"members": ["member-1", "member-0", "member-2"]},
    "members-twice": {"members": ["member-0", "member-0", "member-1"]},
    "member-with-space": {"members": ["member 0", "member-1", "member-2"]},
    "members-null": {"members": None},
    "threshold-text": {"threshold": "2"},
    "another-kind": {"kind": "lethe/round-plan/v2"},
    "more": {"also": 1},
}


@pytest.mark.parametrize("change", PLANS.values(), ids=PLANS.keys())
def test_plans_that_nobody_may_join(change: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        parse_plan({**plan_of(3, 2).document(), **change})


def test_a_plan_is_parsed_by_round_trip() -> None:
    plan = plan_of(3, 2)
    assert parse_plan(plan.document()) == plan
    assert isinstance(plan, RoundPlan)
    assert re.fullmatch(r"[0-9a-f]{64}", plan.digest.hex())


def _pem(key: object) -> str:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()  # type: ignore[attr-defined, no-any-return]


ROSTERS = {
    "a-list": [],
    "no-pem": {"a": "no"},
    "a-number": {"a": 7},
    "rsa": {"a": _pem(generate_private_key(65537, 2048).public_key())},
    "anybody": {"a": _pem(Ed25519PublicKey.from_public_bytes(bytes([1]) + bytes(31)))},
}


@pytest.mark.parametrize("document", ROSTERS.values(), ids=ROSTERS.keys())
def test_rosters_that_pin_nothing(document: object) -> None:
    with pytest.raises(PlanError):
        parse_roster(document)


def test_a_roster_pins_keys() -> None:
    key = Ed25519PrivateKey.generate().public_key()
    assert parse_roster({"a": _pem(key)}) == {"a": key}


def test_signatures_are_over_the_domain_and_the_message() -> None:
    """Nothing that these keys sign elsewhere can be taken for a message of a round."""
    key = Ed25519PrivateKey.generate()
    signature = sign(key, b"message")
    key.public_key().verify(signature, b"lethe/masked-round/message/v1\0" + b"message")
    check(key.public_key(), b"message", signature)
    with pytest.raises(ForgedMessageError):
        check(key.public_key(), b"message", key.sign(b"message"))
    with pytest.raises(ForgedMessageError):
        check(key.public_key(), b"message", signature[:-1])
