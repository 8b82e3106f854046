"""Bodies that are wrong in very many places: few errors are kept, and few are shown."""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from app.api.http.problems import MOST_PLACES, invalid
from app.problems import RoundMessageError
from app.rounds.messages import plan_digest, read_message
from app.schemas.base import Wire
from app.schemas.people import NewCase, PersonQuery
from app.schemas.requests import NewRequest
from lethe import canonical

MANY = 1000
PERSON = {"kind": "email", "sha256": "0" * 64}
BODIES: dict[str, tuple[type[Wire], dict[str, Any]]] = {
    "records": (
        NewRequest,
        {"model": "m", "scope": {"level": "sample", "records": [""] * MANY}},
    ),
    "models of a lookup": (PersonQuery, {"person": PERSON, "models": [0] * MANY}),
    "models of a case": (NewCase, {"person": PERSON, "ticket": "t", "models": [""] * MANY}),
}


@pytest.mark.parametrize("body", BODIES)
def test_a_list_without_a_length_is_refused_at_its_first_error(body: str) -> None:
    wire, sent = BODIES[body]
    with pytest.raises(ValidationError) as refused:
        wire.model_validate_json(json.dumps(sent))
    assert refused.value.error_count() == 1


def test_an_answer_has_the_first_errors_and_counts_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[str] = []

    def near(name: str, *_: Any) -> list[str]:
        compared.append(name)
        return []

    monkeypatch.setattr("app.api.http.problems.get_close_matches", near)
    with pytest.raises(ValidationError) as refused:
        NewRequest.model_validate({str(number): 0 for number in range(MANY)})
    answer = json.loads(bytes(invalid(refused.value.errors()).body))
    assert len(compared) <= len(answer["errors"]) == MOST_PLACES
    assert answer["detail"].endswith(f"`errors`, the first {MOST_PLACES} of {MANY + 2}")
    few = json.loads(bytes(invalid(refused.value.errors()[:MOST_PLACES]).body))
    assert few["detail"].endswith("see `errors`")


NAMES = {str(number): 0 for number in range(MANY)}
MESSAGES: dict[str, dict[str, Any]] = {
    "additions": {"adds": [{}] * MANY},
    "releases": {"releases": [0] * MANY},
    "peers": {"peers": [""] * MANY},
    "names": NAMES,
    "names within": {"adds": [NAMES]},
    "kinds of identities": {"people": NAMES},
}


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_a_round_is_refused_for_few_errors(message: str) -> None:
    plan = {"dimension": 2, "classes": 2}
    body = {
        "adds": [],
        "peers": [],
        "people": {},
        "releases": [],
        "statement": "",
        "vector": "",
    }
    said = {
        "body": {**body, **MESSAGES[message]},
        "from": "k",
        "plan": plan_digest(plan),
        "signature": base64.b64encode(bytes(64)).decode(),
        "step": "masked",
    }
    key = Ed25519PrivateKey.generate().public_key()
    with pytest.raises(RoundMessageError) as refused:
        read_message(canonical.encode(said), plan=plan, step="masked", keyid="k", key=key)
    cause = refused.value.__context__
    assert not isinstance(cause, ValidationError) or cause.error_count() < 5
