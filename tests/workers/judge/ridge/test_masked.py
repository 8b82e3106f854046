"""Check 1 of a masked model sees each planted lie about a round."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.workers.secure_sum.rounds import Play, plan_of, restated
from workers.arrays import Rows
from workers.judge.checks import ODD_INPUT
from workers.judge.ridge.claim import ClaimedStatistics, MaskedClaim, RidgeClaim
from workers.judge.ridge.masked import SPEC, check_masked, resum
from workers.methods.ridge.statistics.gram import RidgeStatistics, statistics_digest
from workers.methods.ridge.statistics.message import summarise
from workers.secure_sum.messages import (
    Confirmation,
    MaskedInput,
    Reveal,
    open_message,
    sign_message,
    statements_digest,
)
from workers.secure_sum.plan import RoundPlan
from workers.secure_sum.vector import Sums, Vector, to_vector

DIMENSION, CLASSES, BITS, PENALTY = 5, 3, 12, 0.5
EXPONENTS = (0,) * DIMENSION
MEMBERS = 4


def rows(seed: int, count: int) -> Rows:
    generator = np.random.default_rng(seed)
    codes = generator.integers(-200, 200, (count, DIMENSION)).astype(np.int16)
    return Rows(codes, generator.integers(0, CLASSES, count))


def sums(part: Rows, sign: int = 1) -> Vector:
    found = summarise(part, DIMENSION, CLASSES, bits=BITS)
    inner = found.statistics
    return to_vector(
        Sums(
            sign * inner.gram,
            sign * inner.moment,
            sign * found.counts,
            sign * inner.rows,
        )
    )


class ParsedUpload:
    """Before: rows 0 and 1 of each member. The round: each adds one, releases its row 0."""

    def __init__(self) -> None:
        plan = plan_of(MEMBERS, 3, dimension=DIMENSION, classes=CLASSES)
        self.plan: RoundPlan = plan
        self.released = {name: rows(i, 1) for i, name in enumerate(plan.members)}
        self.kept = {name: rows(10 + i, 1) for i, name in enumerate(plan.members)}
        self.fresh = {name: rows(20 + i, 1) for i, name in enumerate(plan.members)}
        inputs = {n: sums(self.fresh[n]) + sums(self.released[n], -1) for n in plan.members}
        self.play = Play(plan, inputs, {"member-3": "masked"}).run()

    def statistics(self, *parts: Rows) -> RidgeStatistics:
        joined = Rows(
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.labels for part in parts]),
        )
        return summarise(joined, DIMENSION, CLASSES, bits=BITS).statistics

    def claims(self) -> tuple[RidgeClaim, MaskedClaim]:
        names = [name for name in self.plan.members if name != "member-3"]
        before = self.statistics(*self.released.values(), *self.kept.values())
        after = self.statistics(
            *self.kept.values(),
            self.released["member-3"],
            *(self.fresh[name] for name in names),
        )
        ridge = RidgeClaim(
            dimension=DIMENSION,
            classes=CLASSES,
            exponents=EXPONENTS,
            bits=BITS,
            penalty=PENALTY,
            statistics_digest=digest(after),
            head=np.zeros((DIMENSION, CLASSES), dtype=np.float32),
            witness=np.zeros((1, DIMENSION, CLASSES)),
            bound=0.0,
        )
        masked = MaskedClaim(
            plan=self.plan.document(),
            roster={
                name: key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
                for name, key in self.play.roster.items()
            },
            messages=self.play.messages(),
            before=ClaimedStatistics(before.gram, before.moment, before.rows),
            before_digest=digest(before),
            erased=[f"old-{name}" for name in names],
        )
        return ridge, masked


def digest(statistics: RidgeStatistics) -> str:
    return statistics_digest(statistics, EXPONENTS, BITS, PENALTY)


LESSON = ParsedUpload()


def test_the_sum_is_taken_again_with_other_code() -> None:
    ridge, masked = LESSON.claims()
    judgement, found = check_masked(ridge, masked)
    assert judgement.check.passed, judgement.check.value
    assert judgement.check.name == SPEC.name
    assert found is not None
    assert found.rows == 8


def test_a_first_round_has_nothing_before_it() -> None:
    ridge, masked = LESSON.claims()
    plan = LESSON.plan
    play = Play(plan, {name: sums(LESSON.fresh[name]) for name in plan.members})
    play.advertise().share()
    for name in plan.members:
        play.masked[name] = play.members[name].masked_input(
            play.sealed_to(name), play.inputs[name], [(f"new-{name}", "s")]
        )
    play.confirm().reveal()
    after = LESSON.statistics(*LESSON.fresh.values())
    roster = {
        name: key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        for name, key in play.roster.items()
    }
    first = replace(
        masked,
        roster=roster,
        messages=play.messages(),
        before=None,
        before_digest=None,
        erased=[],
    )
    judgement, _ = check_masked(replace(ridge, statistics_digest=digest(after)), first)
    assert judgement.check.passed, judgement.check.value
    missing = replace(first, before_digest="00" * 32)
    assert "missing" in check_masked(ridge, missing)[0].check.value


def resign(step: str, name: str, change: Callable[[Any], Any]) -> list[bytes]:
    """The round's messages with one that its sender changed."""
    play = LESSON.play
    part = {"masked": play.masked, "confirm": play.confirmed, "reveal": play.revealed}[step]
    _, message = open_message(play.plan, part[name], play.roster)
    changed = change(message)
    lies = {}
    if step == "masked":  # the liar states the same, and all confirm it
        changed = restated(play, name, changed)
        stated = {}
        for each, data in play.masked.items():
            _, own = open_message(play.plan, data, play.roster)
            assert isinstance(own, MaskedInput)
            signed = changed.statement if each == name else own.statement
            stated[each] = open_message(play.plan, signed, play.roster)[1]
        confirmation = Confirmation(statements_digest(stated))  # type: ignore[arg-type]
        lies = {
            data: sign_message(play.plan, each, confirmation, play.keys[each])
            for each, data in play.confirmed.items()
        }
    lies[part[name]] = sign_message(play.plan, name, changed, play.keys[name])
    return [lies.get(data, data) for data in play.messages()]


def restate(change: Callable[[Any], Any]) -> list[bytes]:
    """The round's messages with one input that does not match its statement."""
    play = LESSON.play
    _, message = open_message(play.plan, play.masked["member-0"], play.roster)
    other = sign_message(play.plan, "member-0", change(message), play.keys["member-0"])
    return [other if data == play.masked["member-0"] else data for data in play.messages()]


def _vector(message: MaskedInput) -> MaskedInput:
    vector = message.vector.copy()
    vector[3] += np.uint64(1)
    return replace(message, vector=vector)


def _count(message: MaskedInput) -> MaskedInput:
    vector = message.vector.copy()
    vector[-1] += np.uint64(1)
    return replace(message, vector=vector)


def _label(message: MaskedInput) -> MaskedInput:
    vector = message.vector.copy()
    vector[-2] += np.uint64(1)
    return replace(message, vector=vector)


def _peers(message: MaskedInput) -> MaskedInput:
    return replace(message, peers=message.peers[:3])


def _releases(message: MaskedInput) -> MaskedInput:
    return replace(message, releases=("old-member-1",))


def _adds(message: MaskedInput) -> MaskedInput:
    return replace(message, adds=(("old-member-1", "s"),))


def _shares(message: Reveal) -> Reveal:
    shares = {name: bytes(16) for name in message.self_shares}
    return replace(message, self_shares=shares)


def _flip(data: bytes) -> bytes:
    document = json.loads(data)
    signature = bytearray(base64.b64decode(document["signature"]))
    signature[40] ^= 1
    document["signature"] = base64.b64encode(bytes(signature)).decode()
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _messages(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[MaskedClaim], Any]:
    return lambda masked: replace(masked, messages=change(list(masked.messages)))


def _other_before(masked: MaskedClaim) -> MaskedClaim:
    assert masked.before is not None
    gram = masked.before.gram.copy()
    gram[0, 0] += 1
    return replace(masked, before=replace(masked.before, gram=gram))


LIES: dict[str, tuple[Callable[[MaskedClaim], MaskedClaim], str]] = {
    "an-input-changed": (
        lambda m: replace(m, messages=resign("masked", "member-0", _vector)),
        "",
    ),
    "a-row-more": (
        lambda m: replace(m, messages=resign("masked", "member-0", _count)),
        "another number of rows",
    ),
    "a-label-more": (
        lambda m: replace(m, messages=resign("masked", "member-0", _label)),
        "label counts",
    ),
    "other-peers": (
        lambda m: replace(m, messages=resign("masked", "member-0", _peers)),
        "different peers",
    ),
    "released-twice": (
        lambda m: replace(m, messages=resign("masked", "member-0", _releases)),
        "twice",
    ),
    "added-and-released": (
        lambda m: replace(m, messages=resign("masked", "member-0", _adds)),
        "added and released",
    ),
    "another-input-than-stated": (
        lambda m: replace(m, messages=restate(_vector)),
        "not about its sender's input",
    ),
    "another-sum-confirmed": (
        lambda m: replace(
            m,
            messages=resign("confirm", "member-1", lambda _: Confirmation(bytes(32))),
        ),
        "different sums",
    ),
    "confirmations-missing": (
        _messages(lambda d: [x for x in d if x not in LESSON.play.confirmed.values()]),
        "had not confirmed",
    ),
    "shares-of-nothing": (
        lambda m: replace(m, messages=resign("reveal", "member-0", _shares)),
        "shares do not make",
    ),
    "forged": (_messages(lambda d: [_flip(d[0]), *d[1:]]), "not signed by its sender"),
    "sent-twice": (_messages(lambda d: [*d, d[0]]), "two messages"),
    "an-input-missing": (
        _messages(lambda d: [x for x in d if x != LESSON.play.masked["member-0"]]),
        "no client has released",
    ),
    "reveals-missing": (
        _messages(lambda d: [x for x in d if x not in LESSON.play.revealed.values()]),
        "shares do not make",
    ),
    "another-round": (
        lambda m: replace(m, plan={**m.plan, "threshold": 4}),
        "another round",
    ),
    "another-model": (lambda m: replace(m, plan={**m.plan, "classes": 2}), "another model"),
    "before-changed": (_other_before, "not the published ones"),
    "nobody-released-it": (
        lambda m: replace(m, erased=[*m.erased, "old-member-3"]),
        "no client has released",
    ),
}


@pytest.mark.parametrize(("change", "said"), LIES.values(), ids=LIES.keys())
def test_a_lie_about_the_round(change: Callable[[MaskedClaim], MaskedClaim], said: str) -> None:
    ridge, masked = LESSON.claims()
    judgement, _ = check_masked(ridge, change(masked))
    assert not judgement.check.passed
    assert said in judgement.check.value
    assert "old-" not in judgement.check.value, "a certificate names no record"


@pytest.mark.parametrize("entry", range(DIMENSION * (DIMENSION + 1) // 2))
def test_statistics_off_by_one_anywhere(entry: int) -> None:
    """A published digest of statistics that differ in one entry of G."""
    ridge, masked = LESSON.claims()
    _, found = check_masked(ridge, masked)
    assert found is not None
    gram = found.gram.copy()
    row, column = (int(index[entry]) for index in np.triu_indices(DIMENSION))
    gram[row, column] += 1
    gram[column, row] = gram[row, column]
    wrong = digest(RidgeStatistics(gram, found.moment.copy(), found.rows))
    judgement, _ = check_masked(replace(ridge, statistics_digest=wrong), masked)
    assert not judgement.check.passed


@pytest.mark.parametrize(
    ("places", "said"),
    [((0,), "larger entries than its rows"), ((15,), "larger entries than its rows")],
    ids=["a square", "a moment"],
)
def test_a_sum_that_no_rows_have_is_refuted(places: tuple[int, ...], said: str) -> None:
    """Published as it is summed: the masks hide what a member sent, and its digest agrees."""
    ridge, masked = LESSON.claims()
    by = np.zeros(LESSON.plan.length, dtype=np.uint64)
    by[list(places)] = 1 << 50

    def more(message: MaskedInput) -> MaskedInput:
        return replace(message, vector=message.vector + by)

    lied = replace(masked, messages=resign("masked", "member-0", more))
    found = resum(ridge, lied)
    statistics = RidgeStatistics(found.gram, found.moment, found.rows)
    judgement, vouched = check_masked(
        replace(ridge, statistics_digest=digest(statistics)), lied
    )
    assert (judgement.check.passed, vouched) == (False, None)
    assert said in judgement.check.value


ODD: dict[str, Callable[[MaskedClaim], MaskedClaim]] = {
    "no-json": _messages(lambda d: [b"\xff", *d]),
    "a-list": _messages(lambda d: [b"[]", *d]),
    "empty-object": _messages(lambda d: [b"{}", *d]),
    "no-plan": lambda m: replace(m, plan={}),
    "plan-of-nulls": lambda m: replace(m, plan=dict.fromkeys(m.plan)),
    "no-roster": lambda m: replace(m, roster={}),
    "no-key": lambda m: replace(m, roster=dict.fromkeys(m.roster, "no PEM")),
}


@pytest.mark.parametrize("change", ODD.values(), ids=ODD.keys())
def test_odd_input_is_a_verdict(change: Callable[[MaskedClaim], MaskedClaim]) -> None:
    ridge, masked = LESSON.claims()
    try:
        judgement, _ = check_masked(ridge, change(masked))
    except ODD_INPUT:
        return  # `judge` makes it the failure of this check
    assert not judgement.check.passed
