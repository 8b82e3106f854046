"""Of masked rounds: plans, rosters, messages, and all messages of a round.

Messages are signed after they were changed, so that what follows the signature is reached.
"""

import json
from collections.abc import Sequence
from functools import cache
from hashlib import sha256

import httpx2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.problems import RoundMessageError
from app.rounds.messages import read_message
from app.schemas.rounds import Kind
from benchmarks.fuzz.mutate import Mutator, as_json, as_json_lines, as_lines, plain
from benchmarks.fuzz.target import Target
from lethe.client.answers import parse_object
from lethe.client.errors import ClientError
from lethe.signing.keys import generate_key, public_pem
from tests.workers.secure_sum.rounds import Play, plan_of, random_inputs
from workers.secure_sum.aggregate import read_transcript, unmask
from workers.secure_sum.errors import PlanError, RoundError
from workers.secure_sum.messages import open_message
from workers.secure_sum.plan import parse_plan
from workers.secure_sum.signing import SigningKey, read_roster, sign
from workers.secure_sum.spelling import spell, to_text

JSON: tuple[Mutator, ...] = (as_json, as_json, plain)
PLAN = plan_of(4, 3)
SENDER = "member-1"
STEPS: tuple[Kind, ...] = ("advertise", "share", "masked", "statement", "confirm", "reveal")


def _key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest())


KEYS: dict[str, SigningKey] = {name: _key(name) for name in PLAN.members}


@cache
def played() -> Play:
    """Return a round from which one member drops out before it sends its input."""
    return Play(PLAN, random_inputs(PLAN, 3), {"member-3": "masked"}, KEYS).run()


def _messages() -> Sequence[bytes]:
    """Return a member's message of each step, and the statement inside one."""
    play = played()
    parts = (play.advertised, play.shared, play.masked, play.confirmed, play.revealed)
    return [*(part[SENDER] for part in parts), *play.stated(SENDER)]


def signed(data: bytes) -> bytes:
    """Return a message signed by its sender, and so the statement in it, whatever they say."""
    try:
        document = json.loads(data)
        if not isinstance(document, dict):
            return data
        body = document.get("body")
        if isinstance(body, dict) and isinstance(body.get("statement"), str):
            body["statement"] = signed(body["statement"].encode()).decode()
        document.pop("signature", None)
        sender = document.get("from")
        key = KEYS.get(sender if isinstance(sender, str) else "", KEYS[SENDER])
        return spell({**document, "signature": to_text(sign(key, spell(document)))})
    except (ValueError, RecursionError):
        return data


def _opened(data: bytes) -> object:
    return open_message(PLAN, signed(data), played().roster)


def _received(data: bytes) -> object:
    """Read a message as the service does, for the step that it names."""
    message = signed(data)
    named = [step for step in STEPS if b'"step":"%b"' % step.encode() in message[-300:]]
    key = KEYS[SENDER].public_key()
    return read_message(
        message, plan=PLAN.document(), step=(named or STEPS)[-1], keyid=SENDER, key=key
    )


def _unmasked(data: bytes) -> object:
    messages = [signed(line) for line in data.split(b"\n")]
    found = read_transcript(PLAN, played().roster, messages)
    return unmask(PLAN, found)


def _plan(data: bytes) -> object:
    return parse_plan(parse_object(httpx2.Response(200, content=data)))


def _rosters() -> Sequence[bytes]:
    keys = (generate_key("ed25519"), generate_key("ecdsa-p256-sha256"))
    return [spell({f"member-{n}": public_pem(key) for n, key in enumerate(keys)})]


TARGETS = (
    Target("round-message", _opened, _messages, (RoundError,), JSON),
    Target("round-step", _received, _messages, (RoundMessageError,), JSON),
    Target(
        "round-transcript",
        _unmasked,
        lambda: [b"\n".join(played().messages())],
        (RoundError,),
        (as_json_lines, as_json_lines, as_lines, plain),
    ),
    Target(
        "round-plan", _plan, lambda: [spell(PLAN.document())], (ClientError, PlanError), JSON
    ),
    Target("round-roster", read_roster, _rosters, (PlanError,), JSON),
)
