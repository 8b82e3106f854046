"""What a refused scope tells, to whom, and who waits for it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update
from sqlmodel import Session, col, select

from app.service import acceptance, scope, signatures
from app.vault.master import open_tombstone_key
from lethe.signing.keys import generate_key
from models import ErasureRequest, LogEntry, Model, Record, Tombstone
from tests.installation import Installation
from tests.small import MODEL, Caller, pack, rows
from workers.errors import RefusedError
from workers.jobs import learn


def caller(ready: Installation, name: str, role: str, **bound: str) -> Caller:
    made = replace(ready.caller, keyid=name, key=generate_key("ed25519"))
    assert made.register_key(role=role, **bound).status_code == 201
    return made


def slug(answer: Any) -> str:
    return str(answer.json()["type"]).removeprefix("urn:lethe:problem:")


@pytest.fixture
def erased(ready: Installation) -> Installation:
    """r1 of c1 and r2 of c2 are erased; r3 of c3 is claimed."""
    for record in ("r1", "r2"):
        assert ready.caller.erase_records(record).status_code == 202
    ready.drain()
    assert ready.caller.erase_records("r3").status_code == 202
    return ready


@pytest.mark.parametrize("bound", [{"client": "c1"}, {"subject": "c1"}])
def test_a_bound_key_gets_one_answer_for_all_that_is_not_its_own(
    erased: Installation, bound: dict[str, str]
) -> None:
    signer = caller(erased, "bound", "requester", **bound)
    foreign = {"present": "r4", "erased": "r2", "claimed": "r3", "never there": "nobody"}
    answers = {
        what: signer.erase_records("r6", record).json() for what, record in foreign.items()
    }
    assert {answer["type"] for answer in answers.values()} == {
        "urn:lethe:problem:key-not-entitled"
    }
    assert len({str(answer) for answer in answers.values()}) == 1
    assert {answer["places"] for answer in answers.values()} == {"2"}  # r6 is its own


def test_an_unknown_id_of_a_mixed_list_is_named_by_its_place(erased: Installation) -> None:
    """To keys that reach every record; the id itself is in no problem."""
    answer = erased.caller.erase_records("r6", "nobody", "r4", "none")
    assert slug(answer) == "record-unknown"
    assert answer.json()["places"] == "2, 4"
    assert "nobody" not in answer.text
    # What was erased is no unknown id: whoever asks is told of the request that erased it.
    assert slug(erased.caller.erase_records("r6", "nobody", "r2")) == "already-erased"
    assert "places" not in erased.caller.erase({"level": "client", "client": "nobody"}).json()


def test_a_bound_key_is_told_what_became_of_its_own(erased: Installation) -> None:
    signer = caller(erased, "bound", "requester", client="c1")
    own = signer.erase_records("r1", "r6")
    assert slug(own) == "already-erased"
    # Of its own and another's, it is told of its own.
    assert slug(signer.erase_records("r1", "r2")) == "already-erased"


@pytest.mark.parametrize("scope", [{"client": "c2"}, {"subject": "x", "client": "c2"}])
def test_another_client_s_name_is_refused_before_anything_is_looked_up(
    ready: Installation, scope: dict[str, str]
) -> None:
    signer = caller(ready, "bound", "requester", client="c1")
    level = "subject" if "subject" in scope else "client"
    known = signer.erase({"level": level, **scope})
    unknown = signer.erase({"level": level, **scope, "client": "nobody"})
    assert slug(known) == "key-not-entitled"
    assert known.json() == unknown.json()


@pytest.mark.parametrize("level", ["client", "subject"])
def test_whoever_is_erased_twice_is_told_so(ready: Installation, level: str) -> None:
    scope = {"level": level, level: "c1"}
    first = ready.caller.erase(scope).json()
    ready.drain()
    again = ready.caller.erase(scope)
    assert (again.status_code, slug(again)) == (409, "already-erased")
    assert again.json()["ref"] == first["ref"]
    assert slug(ready.caller.erase({"level": level, level: "nobody"})) == "record-unknown"
    bound = caller(ready, "bound", "requester", client="c1")
    assert slug(bound.erase(scope)) == "already-erased"
    assert "request" not in bound.erase(scope).json()
    other = caller(ready, "other", "requester", client="c2")
    assert slug(other.erase({"level": "subject", "subject": "c1"})) == "record-unknown"


def add_back(client: Caller, numbers: list[int], owner: str, subject: str | None = None) -> Any:
    arrays: dict[str, Any] = {name: values[numbers] for name, values in rows().items()}
    arrays["clients"][:] = owner
    if subject is not None:
        arrays["subjects"] = np.array([subject] * len(numbers))
    path = f"/v1/models/{MODEL}/contributions?add_back=true"
    return client.signed("POST", path, pack(arrays), content_type="application/x-npz")


def test_only_its_own_client_brings_a_record_back(erased: Installation) -> None:
    other, free = (
        caller(erased, "other", "client", client="c2"),
        caller(erased, "free", "client"),
    )
    refused = [add_back(other, [1], "c2"), add_back(free, [1], "c2")]
    assert [slug(answer) for answer in refused] == ["conflict"] * 2
    # The answer for what is erased and for what is there is the same.
    assert add_back(other, [6], "c2").json() == refused[0].json()
    with Session(erased.services.engine) as session:
        assert len(session.exec(select(Tombstone)).all()) == 2
    own = caller(erased, "own", "client", client="c1")
    assert add_back(own, [1], "c1").status_code == 202
    erased.drain()
    with Session(erased.services.engine) as session:
        assert len(session.exec(select(Tombstone)).all()) == 2  # r2 and, now, r3
        assert session.exec(select(Record).where(Record.record == "r1")).one()


def test_a_key_of_one_subject_brings_nothing_of_another_back(erased: Installation) -> None:
    """Nor does its holder learn which ids of the client were erased, and which are there."""
    narrow = caller(erased, "narrow", "client", client="c1", subject="s1")
    answers = [add_back(narrow, [number], "c1", "s1") for number in (1, 6)]  # erased, there
    assert [slug(answer) for answer in answers] == ["conflict"] * 2
    assert answers[0].json() == answers[1].json()
    with Session(erased.services.engine) as session:
        assert len(session.exec(select(Tombstone)).all()) == 2
    # What was erased from the subject comes back to it.
    own = caller(erased, "own", "client", client="c1", subject="c1")
    assert add_back(own, [1], "c1", "c1").status_code == 202


def test_a_record_that_is_erased_before_it_is_learned_stays_with_its_client(
    ready: Installation,
) -> None:
    # Accepted while r1 had no tombstone would be refused as present; so it is new and erased.
    own = caller(ready, "own", "client", client="c1")
    other = caller(ready, "other", "client", client="c2")
    assert ready.caller.erase_records("r1").status_code == 202
    ready.drain()
    assert add_back(own, [1], "c1").status_code == 202
    late = add_back(other, [1], "c2")
    assert slug(late) == "conflict"
    ready.drain()
    with Session(ready.services.engine) as session:
        assert session.exec(select(Tombstone)).all() == []


def test_nobody_waits_for_ids_that_nobody_holds(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the writer was asked")

    with Session(ready.services.engine) as session:
        before = len(session.exec(select(LogEntry)).all())
    monkeypatch.setattr(ready.services.ledger, "transact", never)
    answer = ready.caller.erase_records(*(f"nobody-{number}" for number in range(2000)))
    assert slug(answer) == "record-unknown"
    with Session(ready.services.engine) as session:
        assert len(session.exec(select(LogEntry)).all()) == before


def between(
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[], object],
    first: Callable[[], object] = lambda: None,
) -> list[int]:
    """Let something happen between each check of a scope and the transaction after it."""
    tried: list[int] = []

    def key(*arguments: Any) -> Any:
        first()  # before the snapshot
        return signatures.current_key(*arguments)

    def check(*arguments: Any) -> None:
        scope.check_scope(*arguments)
        tried.append(1)
        happens()

    monkeypatch.setattr(acceptance, "FEW", 1)  # more names than that are checked before
    monkeypatch.setattr(acceptance, "current_key", key)
    monkeypatch.setattr(acceptance, "check_scope", check)
    return tried


def test_who_was_overtaken_is_told_by_whom(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = caller(ready, "quick", "requester")
    first: list[Any] = []

    def overtake() -> None:
        monkeypatch.undo()
        first.append(other.erase_records("r1", "r2").json())

    tried = between(monkeypatch, overtake)
    answer = ready.caller.erase_records("r1", "r3")
    assert slug(answer) == "already-erased"
    assert answer.json()["ref"] == first[0]["ref"]
    assert len(tried) == 1
    with Session(ready.services.engine) as session:
        assert len(session.exec(select(ErasureRequest)).all()) == 1
        held = select(Record.record).where(col(Record.claimed_by).is_not(None))
        assert sorted(session.exec(held)) == ["r1", "r2"]


def test_a_scope_that_keeps_changing_is_refused_and_nothing_is_stored(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flip(claimed: str | None) -> None:
        with Session(ready.services.engine) as session:
            statement = update(Record).where(col(Record.record) == "r2")
            session.connection().execute(statement.values(claimed_by=claimed))
            session.commit()

    holder = ready.caller.erase_records("r1").json()["id"]
    tried = between(monkeypatch, lambda: flip(holder), lambda: flip(None))
    answer = ready.caller.erase_records("r2", "r3")
    assert (answer.status_code, slug(answer)) == (409, "scope-changed")
    assert len(tried) == acceptance.CHECKS
    with Session(ready.services.engine) as session:
        assert len(session.exec(select(ErasureRequest)).all()) == 1


def test_what_a_restore_knows_as_erased_stays_erased_without_a_request(
    erased: Installation,
) -> None:
    with Session(erased.services.engine) as session:
        for stone in session.exec(select(Tombstone)):
            stone.request_id = stone.subject_id = None
        session.commit()
    again = erased.caller.erase_records("r1")
    assert (again.status_code, slug(again)) == (409, "already-erased")
    assert "ref" not in again.json()
    assert slug(erased.caller.erase_records("nobody")) == "record-unknown"


def test_a_contribution_is_refused_in_words_that_are_right_for_what_a_restore_knows(
    erased: Installation,
) -> None:
    """Who it was erased from is asked to send the wish, unless nobody knows who that was."""
    own = caller(erased, "own", "client", client="c1")
    here = own.signed(
        "POST",
        f"/v1/models/{MODEL}/contributions",
        pack({name: values[[1]] for name, values in rows().items()}),
        content_type="application/x-npz",
    ).json()["detail"]
    assert "add_back=true" in here
    with Session(erased.services.engine) as session:
        for stone in session.exec(select(Tombstone)):
            stone.request_id = stone.subject_id = None
        session.commit()
    answer = add_back(own, [1], "c1")
    assert (answer.status_code, slug(answer)) == (409, "conflict")
    # It was sent with the wish, by whom it was erased from: another remedy must be named.
    assert (
        "only the erasure journal knows of it since the database was restored"
        in (answer.json()["detail"])
    )
    assert answer.json()["detail"] == here  # and nobody learns which of both it is
    with erased.services.reading() as session:
        model = session.exec(select(Model)).one()
        assert model.id is not None
        key = open_tombstone_key(erased.services.root_secret, model)
        for wish in (False, True):
            with pytest.raises(RefusedError, match="erasure journal knows of it since"):
                learn.refuse_known(session, model.id, [("r1", "c1")], key, wish)
