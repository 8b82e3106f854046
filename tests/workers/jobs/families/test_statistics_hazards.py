"""Several requests, answers and decisions about the same block, in awkward orders.

These tests check: a certificate covers everything that its request named and that was not
erased already; nothing is erased without a request or a decision; no request waits for an
unnecessary answer; no client's lie makes the model unavailable to others.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, col, select

from app.ledger.sequencer import Ledger
from app.settings import Settings
from lethe.signing.keys import generate_key
from models import ErasureRequest, Record
from tests.installation import Installation, head, install, predicate, state
from tests.remote import NPZ, Remote
from tests.small import MODEL, pack
from tests.workers.jobs.attempts.test_decisions import decide
from tests.workers.jobs.families.test_statistics_model import erase
from tests.workers.jobs.test_batch import batching
from workers.families.ridge.family import RidgeFamily
from workers.lineage.versions import OtherModelError
from workers.secure_sum.local import LocalRows


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: these tests do not depend on it."""
    return sqlite_url


@pytest.fixture
def remote(installation: Installation, contributed: Remote) -> Remote:
    return contributed.at(installation)


@pytest.fixture
def sketched(installation: Installation) -> Remote:
    made = Remote(installation, method="ridge-sketched", sketch={"budget": 0.9}, penalty=400.0)
    made.register()
    made.contribute_all(form="sketch", rank=4)
    return made


@pytest.fixture
def two(settings: Settings, ledger: Ledger) -> Iterator[Installation]:
    """An installation where requests wait until there are two."""
    with install(batching(settings, 2)) as made:
        yield made


def model_state(installation: Installation) -> str:
    shown: str = installation.caller.operator("GET", f"/v1/models/{MODEL}").json()["state"]
    return shown


def in_training(installation: Installation, records: list[str]) -> set[str]:
    with Session(installation.services.engine) as session:
        query = select(Record.record).where(col(Record.record).in_(records))
        return set(session.exec(query))


def answer_all(remote: Remote, client: str) -> None:
    for question in remote.asked(client):
        data = remote.message(question["records"])
        assert remote.answer(client, question["id"], data).status_code == 200


def drop_for(installation: Installation, request_id: str) -> None:
    with Session(installation.services.engine) as session:
        ref = session.get_one(ErasureRequest, request_id).ref
    shown = installation.caller.operator("GET", "/v1/releases").json()["items"]
    (release,) = [item for item in shown if item["request"] == ref]
    path = f"/v1/releases/{release['id']}/drop"
    assert installation.caller.operator("POST", path).status_code == 200
    installation.drain()


def test_records_of_a_waiting_request_are_not_certified_before_they_are_gone(
    two: Installation, contributed: Remote
) -> None:
    remote = contributed.at(two)
    c0, c1 = remote.owned("c0"), remote.owned("c1")
    first = erase(two, {"level": "sample", "records": [c0[0]]})
    both = erase(two, {"level": "sample", "records": [c0[1], c1[0]]})
    two.recover()
    whole = erase(two, {"level": "client", "client": "c0"})
    (question,) = [q for q in remote.asked("c0") if q["records"] == [c0[0]]]
    remote.answer("c0", question["id"], remote.message([c0[0]]))
    two.drain()
    answer_all(remote, "c1")
    two.drain()
    two.recover()
    assert state(two, first) == state(two, whole) == "certified"
    if state(two, both) == "certified":
        assert not in_training(two, [c0[1], c1[0]])
    assert not in_training(two, c0)
    two.check()


def test_a_client_scope_needs_no_answer_in_a_batch(
    two: Installation, contributed: Remote
) -> None:
    remote = contributed.at(two)
    single = erase(two, {"level": "sample", "records": [remote.owned("c0")[0]]})
    erase(two, {"level": "sample", "records": [remote.owned("c1")[0]]})
    whole = erase(two, {"level": "client", "client": "c0"})
    answer_all(remote, "c0")
    two.drain()
    two.recover()
    assert state(two, single) == state(two, whole) == "certified"


def test_the_rest_of_a_block_needs_no_answer(
    installation: Installation, remote: Remote
) -> None:
    c2 = remote.owned("c2")
    first = erase(installation, {"level": "sample", "records": c2[:1]})
    rest = erase(installation, {"level": "sample", "records": c2[1:]})
    assert state(installation, rest) == "awaiting-client"
    (question,) = [q for q in remote.asked("c2") if q["records"] == c2[:1]]
    remote.answer("c2", question["id"], remote.message(c2[:1]))
    installation.drain()
    assert state(installation, first) == state(installation, rest) == "certified"
    assert remote.asked("c2") == []


def test_what_came_back_is_not_taken_by_a_request_from_before(
    installation: Installation, remote: Remote
) -> None:
    c0, c1 = remote.owned("c0"), remote.owned("c1")
    waiting = erase(installation, {"level": "sample", "records": [c0[0], c1[0]]})
    whole = erase(installation, {"level": "client", "client": "c0"})
    assert state(installation, whole) == "certified"
    back = remote.clients["c0"].signed(
        "POST",
        f"/v1/models/{MODEL}/contributions?add_back=true",
        remote.message(c0[:4]),
        content_type=NPZ,
    )
    assert back.status_code == 202, back.text
    installation.drain()
    answer_all(remote, "c1")
    installation.drain()
    assert state(installation, waiting) == "certified"
    assert in_training(installation, c0) == set(c0[:4])
    found = predicate(installation, waiting)
    assert found.scope.records == 1
    assert found.method.parameters["erasedBefore"] == "1"
    assert "dropped" not in found.method.parameters


def test_requests_for_a_dropped_block_are_executed_with_it(
    installation: Installation, remote: Remote
) -> None:
    c2 = remote.owned("c2")
    one = erase(installation, {"level": "sample", "records": c2[:1]})
    two = erase(installation, {"level": "sample", "records": c2[1:3]})
    drop_for(installation, one)
    assert state(installation, one) == state(installation, two) == "certified"
    assert predicate(installation, two).scope.records == 2
    assert predicate(installation, two).method.parameters["dropped"] == str(len(c2) - 3)
    assert head(installation) == remote.head_without(set(c2))
    refused = remote.contribute("c2", remote.message(c2[:4]))
    assert refused.status_code == 409  # an erased record comes back only with a signed consent
    installation.check()


def test_a_dropped_block_waits_for_the_others_that_need_more(
    installation: Installation, remote: Remote
) -> None:
    c2, c3 = remote.owned("c2"), remote.owned("c3")
    one = erase(installation, {"level": "sample", "records": c2[:1]})
    two = erase(installation, {"level": "sample", "records": [c2[1], c3[0]]})
    drop_for(installation, one)
    assert state(installation, one) == state(installation, two) == "awaiting-client"
    answer_all(remote, "c3")
    installation.drain()
    assert state(installation, one) == state(installation, two) == "certified"
    assert predicate(installation, two).scope.records == 2
    assert head(installation) == remote.head_without({*c2, c3[0]})
    installation.check()


def test_who_waits_for_a_withdrawn_companion_is_executed_all_the_same(
    installation: Installation, remote: Remote
) -> None:
    c2, c3 = remote.owned("c2"), remote.owned("c3")
    one = erase(installation, {"level": "sample", "records": c2[:1]})
    two = erase(installation, {"level": "sample", "records": [c2[1], c3[0]]})
    drop_for(installation, one)
    assert state(installation, one) == "awaiting-client"
    gone = installation.caller.signed("DELETE", f"/v1/requests/{two}")
    assert gone.status_code == 200, gone.text
    installation.recover()
    assert (state(installation, one), state(installation, two)) == ("certified", "withdrawn")
    assert head(installation) == remote.head_without(set(c2))
    installation.check()


def test_a_request_with_a_dropped_block_waits_for_a_decision_as_others_do(
    installation: Installation, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep resumes those whose companions have answered, and leaves this one."""

    def changed(*_: Any) -> Any:
        raise OtherModelError("planted")

    c2 = remote.owned("c2")
    request = erase(installation, {"level": "sample", "records": c2[:1]})
    with monkeypatch.context() as planted:
        planted.setattr(RidgeFamily, "forget", changed)
        drop_for(installation, request)
    assert state(installation, request) == "needs-decision"
    installation.recover()
    assert state(installation, request) == "needs-decision"
    assert decide(installation, request, "retry") == 200
    installation.drain()
    assert state(installation, request) == "certified"
    assert head(installation) == remote.head_without(set(c2))
    installation.check()


def test_a_key_of_one_subject_does_not_answer_for_another(
    installation: Installation, remote: Remote
) -> None:
    wanted = remote.owned("c2")[:1]
    erase(installation, {"level": "sample", "records": wanted})
    (question,) = remote.asked("c2")
    narrow = replace(installation.caller, keyid="narrow", key=generate_key("ed25519"))
    narrow.register_key(role="client", client="c2", subject="somebody-else")
    remote.clients["narrow"] = narrow
    assert remote.asked("narrow") == []
    answer = remote.answer("narrow", question["id"], remote.message(wanted))
    assert answer.status_code == 404
    assert wanted[0] not in answer.text


def test_an_answer_sent_again_is_answered_the_same(
    installation: Installation, remote: Remote
) -> None:
    wanted = remote.owned("c2")[:1]
    erase(installation, {"level": "sample", "records": wanted})
    (question,) = remote.asked("c2")
    data = remote.message(wanted)
    assert remote.answer("c2", question["id"], data).status_code == 200
    installation.drain()
    assert remote.answer("c2", question["id"], data).status_code == 200
    other = remote.message(wanted, form="factor")
    assert remote.answer("c2", question["id"], other).status_code == 409


def test_one_client_s_lie_costs_the_others_no_second_answer(
    installation: Installation, remote: Remote
) -> None:
    c0, c1 = remote.owned("c0"), remote.owned("c1")
    request_id = erase(installation, {"level": "sample", "records": [c0[0], c1[0]]})
    answer_all(remote, "c0")
    honest = remote.rows
    remote.rows = LocalRows(
        honest.features * 10, honest.labels, honest.clients, honest.records, honest.subjects
    )
    answer_all(remote, "c1")
    remote.rows = honest
    installation.drain()
    assert state(installation, request_id) == "awaiting-client"
    assert remote.asked("c0") == []
    answer_all(remote, "c1")
    installation.drain()
    assert state(installation, request_id) == "certified"


def test_a_request_that_waits_for_its_client_can_be_withdrawn(
    installation: Installation, remote: Remote
) -> None:
    wanted = remote.owned("c2")[:2]
    request_id = erase(installation, {"level": "sample", "records": wanted})
    answer = installation.caller.signed("DELETE", f"/v1/requests/{request_id}")
    assert answer.status_code == 200, answer.text
    assert state(installation, request_id) == "withdrawn"
    assert remote.asked("c2") == []
    again = erase(installation, {"level": "sample", "records": wanted})
    answer_all(remote, "c2")
    installation.drain()
    assert state(installation, again) == "certified"
    installation.check()


WIDE, LABELS = 64, 200  # many classes widen the tolerance of the float64 tests


def forged(rows: int) -> dict[str, Any]:
    """Two columns with equal squares, and a product that exceeds these by two.

    Rounding hides this from a test in float64, but not from exact arithmetic.
    """
    square = rows * (32767 // 2) ** 2 // 2 * 2
    gram = np.eye(WIDE, dtype=np.int64) * square
    gram[0, 1] = gram[1, 0] = square + 2
    counts = np.zeros(LABELS, dtype=np.int64)
    counts[0] = rows
    return {
        "records": np.array([f"forged-{i}" for i in range(rows)]),
        "counts": counts,
        "moment": np.zeros((WIDE, LABELS), dtype=np.int64),
        "client": np.array("c1"),
        "gram": gram[np.triu_indices(WIDE)],
    }


def test_a_forgery_within_rounding_does_not_take_the_model_from_the_others(
    installation: Installation,
) -> None:
    remote = Remote(
        installation,
        classes=[str(label) for label in range(LABELS)],
        exponents=[-12] * WIDE,
        extractor={"id": "identity", "digest": "0" * 64},
    )
    remote.register()
    honest = forged(50)
    codes = np.random.default_rng(0).integers(-4000, 4000, size=(50, WIDE))
    targets = np.eye(LABELS, dtype=np.int64)[np.arange(50) % LABELS]
    honest |= {
        "records": np.array([f"r{i}" for i in range(50)]),
        "counts": targets.sum(axis=0),
        "moment": codes.T @ targets,
        "client": np.array("c0"),
        "gram": (codes.T @ codes)[np.triu_indices(WIDE)],
    }
    states = []
    for client, message in (("c0", honest), ("c1", forged(1000))):
        sent = remote.contribute(client, pack(message))
        assert sent.status_code == 202, sent.text
        installation.drain()
        shown = installation.caller.http.get(sent.headers["location"]).json()
        states.append((shown["state"], shown["failure"]))
    assert states[0] == ("learned", None)
    assert states[1][0] == "failed"
    assert "positive semidefinite" in states[1][1]
    request_id = erase(installation, {"level": "sample", "records": ["r0"]})
    (question,) = remote.asked("c0")
    one = {
        **honest,
        "records": np.array(["r0"]),
        "counts": targets[0],
        "moment": codes[:1].T @ targets[:1],
        "gram": (codes[:1].T @ codes[:1])[np.triu_indices(WIDE)],
    }
    assert remote.answer("c0", question["id"], pack(one)).status_code == 200
    installation.drain()
    assert state(installation, request_id) == "certified"
    assert model_state(installation) == "ready"


def test_a_sketched_client_is_erased(installation: Installation, sketched: Remote) -> None:
    request_id = erase(installation, {"level": "client", "client": "c1"})
    assert state(installation, request_id) == "certified"
    found = predicate(installation, request_id)
    assert found.guarantee.class_ == "certified-approximate"
    assert "not compared" in found.checks[4].value
    assert model_state(installation) == "ready"


@pytest.mark.parametrize("form", [{"form": "sketch", "rank": 2}, {"form": "gram"}], ids=str)
def test_records_of_a_sketched_client_are_erased(
    installation: Installation, sketched: Remote, form: dict[str, Any]
) -> None:
    wanted = sketched.owned("c1")[:3]
    request_id = erase(installation, {"level": "sample", "records": wanted})
    (question,) = sketched.asked("c1")
    sketched.answer("c1", question["id"], sketched.message(wanted, **form))
    installation.drain()
    assert model_state(installation) == "ready"
    assert state(installation, request_id) in ("certified", "awaiting-client")


def test_no_exact_method_goes_on_from_sketches(
    installation: Installation, sketched: Remote
) -> None:
    scope = {"level": "client", "client": "c1"}
    answer = installation.caller.erase(scope, fields={"method": "ridge-exact"})
    assert answer.status_code == 422
    assert "ridge-sketched" in answer.text


def test_an_exact_model_takes_no_sketch(installation: Installation, remote: Remote) -> None:
    wanted = remote.owned("c2")[:3]
    erase(installation, {"level": "sample", "records": wanted})
    (question,) = remote.asked("c2")
    sketch = remote.message(wanted, form="sketch", rank=1)
    assert remote.answer("c2", question["id"], sketch).status_code == 422
    assert len(remote.asked("c2")) == 1
