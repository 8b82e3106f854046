"""Each message has one canonical form, RFC 8785's, and anything else is refused by name."""

import base64
import json
from typing import Any

import pytest
import rfc8785

from tests.workers.secure_sum.rounds import Play, plan_of, random_inputs
from workers.secure_sum.errors import (
    ForeignRoundError,
    ForgedMessageError,
    MalformedMessageError,
    PlanError,
    RoundError,
    UnknownMemberError,
    WrongLengthError,
)
from workers.secure_sum.messages import STEPS, open_message, sign_message
from workers.secure_sum.signing import read_roster, sign
from workers.secure_sum.spelling import spell, to_text

PLAY = Play(plan_of(4, 3), random_inputs(plan_of(4, 3), 3), {"member-3": "masked"}).run()
BY_STEP = dict(
    zip(
        STEPS,
        (
            part["member-1"]
            for part in (
                PLAY.advertised,
                PLAY.shared,
                PLAY.masked,
                PLAY.confirmed,
                PLAY.revealed,
            )
        ),
        strict=True,
    )
)


@pytest.mark.parametrize("step", STEPS)
def test_what_is_opened_is_written_again(step: str) -> None:
    data = BY_STEP[step]
    sender, message = open_message(PLAY.plan, data, PLAY.roster)
    assert (sender, message.step) == ("member-1", step)
    document = json.loads(data)
    assert rfc8785.dumps(document) == data == spell(document)
    assert message.body() == document["body"]
    if step in ("share", "reveal"):  # Ed25519, as member-1 has, signs the same the same way
        assert sign_message(PLAY.plan, sender, message, PLAY.keys[sender]) == data


def test_ids_beyond_ascii_have_one_spelling_too() -> None:
    value: Any = {"adds": ["é", "日本", "\U0001f600", "\u2028", '"\\/'], "n": -5, "t": True}
    assert spell(value) == rfc8785.dumps(value)


def resigned(step: str, change: Any) -> bytes:
    """A message of member-1 whose document was changed and signed again."""
    document = json.loads(BY_STEP[step])
    del document["signature"]
    change(document)
    key = PLAY.keys["member-1"]
    return spell({**document, "signature": to_text(sign(key, spell(document)))})


def _set(*path: str, to: Any) -> Any:
    def change(document: dict[str, Any]) -> None:
        for name in path[:-1]:
            document = document[name]
        document[path[-1]] = to

    return change


def _drop(*path: str) -> Any:
    def change(document: dict[str, Any]) -> None:
        for name in path[:-1]:
            document = document[name]
        del document[path[-1]]

    return change


def _rename_peer(document: dict[str, Any]) -> None:
    shares = document["body"]["shares"]
    shares["member-9"] = shares.pop("member-0")


def _cut_vector(document: dict[str, Any]) -> None:
    document["body"]["vector"] = to_text(bytes(8 * (PLAY.plan.length - 1)))


ID = {"record": "r", "subject": "s"}
SIGNED_CASES: list[tuple[str, str, Any, type[RoundError]]] = [
    ("no-plan", "share", _drop("plan"), MalformedMessageError),
    ("another-plan", "share", _set("plan", to="0" * 64), ForeignRoundError),
    ("plan-null", "share", _set("plan", to=None), ForeignRoundError),
    ("unknown-sender", "share", _set("from", to="member-9"), UnknownMemberError),
    ("sender-a-list", "share", _set("from", to=["member-1"]), UnknownMemberError),
    ("another-sender", "share", _set("from", to="member-0"), ForgedMessageError),
    ("unknown-step", "share", _set("step", to="fifth"), MalformedMessageError),
    ("step-a-list", "share", _set("step", to=[]), MalformedMessageError),
    ("another-step", "share", _set("step", to="reveal"), MalformedMessageError),
    ("extra-member", "share", _set("also", to=1), MalformedMessageError),
    ("body-a-list", "share", _set("body", to=[]), MalformedMessageError),
    ("body-null", "masked", _set("body", to=None), MalformedMessageError),
    ("extra-in-body", "reveal", _set("body", "also", to={}), MalformedMessageError),
    ("key-too-short", "advertise", _set("body", "mask", to=to_text(bytes(31))), WrongLengthError),
    ("key-no-base64", "advertise", _set("body", "mask", to="#" * 44), MalformedMessageError),
    ("key-a-number", "advertise", _set("body", "mask", to=7), MalformedMessageError),
    ("key-missing", "advertise", _drop("body", "cipher"), MalformedMessageError),
    ("shares-for-a-stranger", "share", _rename_peer, UnknownMemberError),
    ("share-too-long", "share", _set("body", "shares", "member-0", to=to_text(bytes(49))), WrongLengthError),
    ("vector-too-short", "masked", _cut_vector, WrongLengthError),
    ("peers-twice", "masked", _set("body", "peers", to=["member-0", "member-0"]), MalformedMessageError),
    ("peers-out-of-order", "masked", _set("body", "peers", to=["member-1", "member-0"]), MalformedMessageError),
    ("peers-strange", "masked", _set("body", "peers", to=["member-1", "nobody"]), UnknownMemberError),
    ("peers-a-number", "masked", _set("body", "peers", to=3), MalformedMessageError),
    ("adds-twice", "masked", _set("body", "adds", to=[ID, ID]), MalformedMessageError),
    ("adds-and-releases", "masked", _set("body", "releases", to=["r-member-1"]), MalformedMessageError),
    ("adds-empty-id", "masked", _set("body", "adds", to=[{**ID, "record": ""}]), MalformedMessageError),
    ("adds-control", "masked", _set("body", "adds", to=[{**ID, "record": "a\nb"}]), MalformedMessageError),
    ("adds-more-fields", "masked", _set("body", "adds", to=[{**ID, "also": "x"}]), MalformedMessageError),
    ("release-too-long", "masked", _set("body", "releases", to=["x" * 201]), MalformedMessageError),
    ("release-a-number", "masked", _set("body", "releases", to=[1]), MalformedMessageError),
    ("reveal-a-stranger", "reveal", _set("body", "self", "member-9", to=to_text(bytes(16))), UnknownMemberError),
    ("reveal-too-short", "reveal", _set("body", "self", "member-0", to=to_text(bytes(15))), WrongLengthError),
]  # fmt: skip


@pytest.mark.parametrize(
    ("step", "change", "error"),
    [case[1:] for case in SIGNED_CASES],
    ids=[case[0] for case in SIGNED_CASES],
)
def test_what_its_sender_signed_and_is_wrong(
    step: str, change: Any, error: type[RoundError]
) -> None:
    data = resigned(step, change)
    with pytest.raises(error) as refused:
        open_message(PLAY.plan, data, PLAY.roster)
    assert type(refused.value) is error
    assert "member-" not in str(refused.value), "a refusal names no member"


SPELLINGS = {
    "empty": b"",
    "no-json": b"\xff\xfe",
    "a-list": b"[]",
    "spaces": BY_STEP["share"].replace(b'":', b'": ', 1),
    "newline": BY_STEP["share"] + b"\n",
    "key-twice": BY_STEP["share"].replace(b'"step":', b'"step":"share","step":', 1),
    "escaped": BY_STEP["share"].replace(b'"from"', b'"\\u0066rom"', 1),
    "nan": b'{"body":NaN}',
    "deep": b"[" * 100_000,
    "surrogate": b'{"body":"\\ud800"}',
}


@pytest.mark.parametrize("data", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_other_spellings_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        open_message(PLAY.plan, data, PLAY.roster)


def test_base64_with_stray_bits_is_another_spelling() -> None:
    """AB== and AA== decode to the same byte; only one is canonical."""
    data = resigned("advertise", _set("body", "mask", to=to_text(bytes(32))[:-2] + "B="))
    with pytest.raises(MalformedMessageError):
        open_message(PLAY.plan, data, PLAY.roster)


def test_an_input_says_which_ids_it_is_about() -> None:
    _, message = open_message(PLAY.plan, BY_STEP["masked"], PLAY.roster)
    assert message.body()["adds"] == [{"record": "r-member-1", "subject": "s"}]
    assert message.body()["releases"] == ["old-member-1"]


# An Ed25519 key whose algorithm is 1.3.101.1, which is none.
NO_ALGORITHM = base64.b64encode(bytes.fromhex("302a300506032b6501032100") + bytes(32)).decode()


@pytest.mark.parametrize(
    "file",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 4000 + b"]" * 4000,
        b'{"a": 1, "a": 2}',
        b'{"member-0": 7}',
        json.dumps(
            {"a": f"-----BEGIN PUBLIC KEY-----\n{NO_ALGORITHM}\n-----END PUBLIC KEY-----\n"}
        ).encode(),
    ],
)
def test_a_file_that_is_no_roster_is_refused(file: bytes) -> None:
    with pytest.raises(PlanError):
        read_roster(file)
