"""Models whose rows stay with their clients: from signed statistics to certificates."""

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from sqlmodel import Session, col, select

from models import Artifact, Certificate, ErasureRequest, FeatureBlock, Release
from models.database.types import utcnow
from tests.installation import Installation, head, predicate, state
from tests.remote import Remote
from tests.small import MODEL
from workers.leases.stalled import ESCALATION_MARGIN


@pytest.fixture
def remote(installation: Installation, contributed: Remote) -> Remote:
    """Five clients, whose statistics are learned."""
    return contributed.at(installation)


def erase(installation: Installation, scope: dict[str, Any]) -> str:
    answer = installation.caller.erase(scope)
    assert answer.status_code == 202, answer.text
    installation.drain()
    request_id: str = answer.json()["id"]
    return request_id


@pytest.mark.parametrize("form", ["gram", "factor"])
def test_statistics_give_the_head_that_rows_give(installation: Installation, form: str) -> None:
    remote = Remote(installation)
    remote.register()
    remote.contribute_all(form=form)
    assert head(installation) == remote.head_without(set())


def test_a_client_is_erased_without_being_asked(
    installation: Installation, remote: Remote
) -> None:
    request_id = erase(installation, {"level": "client", "client": "c1"})
    assert state(installation, request_id) == "certified"
    found = predicate(installation, request_id)
    assert found.result == "PASS"
    assert found.scope.records == len(remote.owned("c1"))
    assert found.checks[0].name == "statistics-resummed"
    assert found.method.parameters["data"] == "statistics"
    assert "not seen, and nothing binds them" in found.guarantee.statement
    assert [check.number for check in found.checks] == [1, 2, 3, 4, 5]  # none of contents
    assert head(installation) == remote.head_without(set(remote.owned("c1")))
    installation.check()


def test_a_client_that_is_asked_nothing_does_not_take_the_logs_turn(
    installation: Installation, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    def transact(*_: Any, **__: Any) -> Any:
        raise AssertionError("a poll took the log's turn")

    monkeypatch.setattr(installation.services.ledger, "transact", transact)
    assert remote.asked("c2") == []


def test_single_records_wait_for_their_client(
    installation: Installation, remote: Remote
) -> None:
    wanted = remote.owned("c2")[:2]
    request_id = erase(installation, {"level": "sample", "records": wanted})
    assert state(installation, request_id) == "awaiting-client"
    (question,) = remote.asked("c2")
    assert sorted(question["records"]) == sorted(wanted)
    assert remote.asked("c1") == []
    assert remote.answer("c2", question["id"], remote.message(wanted)).status_code == 200
    installation.drain()
    assert state(installation, request_id) == "certified"
    assert head(installation) == remote.head_without(set(wanted))
    assert remote.asked("c2") == []
    installation.check()


def test_a_waiting_request_holds_up_nobody(installation: Installation, remote: Remote) -> None:
    waiting = erase(installation, {"level": "sample", "records": remote.owned("c2")[:1]})
    other = erase(installation, {"level": "client", "client": "c3"})
    assert state(installation, waiting) == "awaiting-client"
    assert state(installation, other) == "certified"


def test_a_request_over_several_clients_waits_for_all(
    installation: Installation, remote: Remote
) -> None:
    wanted = [remote.owned("c0")[0], remote.owned("c4")[0], *remote.owned("c1")]
    request_id = erase(installation, {"level": "sample", "records": wanted})
    for client in ("c0", "c4"):
        assert state(installation, request_id) == "awaiting-client"
        (question,) = remote.asked(client)
        remote.answer(client, question["id"], remote.message(question["records"]))
        installation.drain()
    assert state(installation, request_id) == "certified"
    assert head(installation) == remote.head_without(set(wanted))


def test_two_requests_for_one_client_are_both_answered(
    installation: Installation, remote: Remote
) -> None:
    first, second, third = remote.owned("c0")[:3]
    one = erase(installation, {"level": "sample", "records": [first]})
    two = erase(installation, {"level": "sample", "records": [second, third]})
    for question in remote.asked("c0"):
        data = remote.message(question["records"])
        assert remote.answer("c0", question["id"], data).status_code == 200
    installation.drain()
    assert state(installation, one) == state(installation, two) == "certified"
    assert head(installation) == remote.head_without({first, second, third})


def test_what_was_answered_is_kept_sealed_and_then_destroyed(
    installation: Installation, remote: Remote
) -> None:
    wanted = remote.owned("c2")[:1]
    erase(installation, {"level": "sample", "records": wanted})
    (question,) = remote.asked("c2")
    remote.answer("c2", question["id"], remote.message(wanted))
    sent = select(col(Artifact.digest)).where(col(Artifact.kind).in_(("release", "upload")))
    with Session(installation.services.engine) as session:
        assert any(session.exec(sent).all())
    installation.drain()
    with Session(installation.services.engine) as session:
        release = session.exec(select(Release)).one()
        assert release.state == "done"
        assert release.upload_id is None
        # The statistics of one record are the record, and their digest confirms a guess of it.
        assert set(session.exec(sent).all()) == {""}


BAD_ANSWERS = [
    ("other records", lambda remote: remote.message(remote.owned("c2")[2:4]), 422),
    ("too many records", lambda remote: remote.message(remote.owned("c2")[:3]), 422),
    ("not statistics", lambda remote: b"nonsense", 422),
]


@pytest.mark.parametrize(
    ("make", "status"), [pytest.param(m, s, id=name) for name, m, s in BAD_ANSWERS]
)
def test_a_wrong_answer_changes_nothing(
    installation: Installation, remote: Remote, make: Any, status: int
) -> None:
    request_id = erase(installation, {"level": "sample", "records": remote.owned("c2")[:2]})
    (question,) = remote.asked("c2")
    answer = remote.answer("c2", question["id"], make(remote))
    assert answer.status_code == status, answer.text
    assert state(installation, request_id) == "awaiting-client"
    assert len(remote.asked("c2")) == 1


def test_another_client_cannot_answer(installation: Installation, remote: Remote) -> None:
    wanted = remote.owned("c2")[:2]
    erase(installation, {"level": "sample", "records": wanted})
    (question,) = remote.asked("c2")
    answer = remote.answer("c3", question["id"], remote.message(wanted))
    assert answer.status_code == 404


def test_statistics_that_no_rest_can_have_are_refused(
    installation: Installation, remote: Remote
) -> None:
    """The client releases ten times its contribution: nothing is erased, it is asked again."""
    wanted = remote.owned("c2")[:2]
    request_id = erase(installation, {"level": "sample", "records": wanted})
    before = head(installation)
    (question,) = remote.asked("c2")
    honest = remote.rows
    forged = type(honest)(
        honest.features * 10, honest.labels, honest.clients, honest.records, honest.subjects
    )
    remote.rows = forged
    assert remote.answer("c2", question["id"], remote.message(wanted)).status_code == 200
    remote.rows = honest
    installation.drain()
    assert head(installation) == before
    assert state(installation, request_id) == "awaiting-client"
    (again,) = remote.asked("c2")
    remote.answer("c2", again["id"], remote.message(wanted))
    installation.drain()
    assert state(installation, request_id) == "certified"
    assert head(installation) == remote.head_without(set(wanted))


def test_silence_goes_to_a_person_and_never_counts_as_done(
    installation: Installation, remote: Remote
) -> None:
    wanted = remote.owned("c2")[:2]
    request_id = erase(installation, {"level": "sample", "records": wanted})
    remote.asked("c2")
    with Session(installation.services.engine) as session:
        release = session.exec(select(Release)).one()
        assert release.asked == 1
        release.escalates_at = utcnow()
        session.add(release)
        session.commit()
    installation.dispatcher.sweep(installation.services)
    assert state(installation, request_id) == "escalated"
    history = installation.caller.http.get(f"/v1/requests/{request_id}").json()["history"]
    assert [item["event"] for item in history][-1] == "request.escalated"
    assert len(remote.asked("c2")) == 1  # it may still answer
    (shown,) = installation.caller.operator("GET", "/v1/releases").json()["items"]
    assert shown["records"] == 2
    assert shown["block_records"] == len(remote.owned("c2"))
    dropped = installation.caller.operator("POST", f"/v1/releases/{shown['id']}/drop")
    assert dropped.status_code == 200, dropped.text
    installation.drain()
    assert state(installation, request_id) == "certified"
    assert head(installation) == remote.head_without(set(remote.owned("c2")))
    found = predicate(installation, request_id)
    assert found.scope.records == 2  # the others' ids are not shown
    assert found.method.parameters["dropped"] == str(len(remote.owned("c2")) - 2)
    installation.check()


def test_an_extension_gives_the_client_more_time(
    installation: Installation, remote: Remote
) -> None:
    wanted = remote.owned("c2")[:2]
    request_id = erase(installation, {"level": "sample", "records": wanted})
    path = f"/v1/cases/{request_id}/extend"
    extended = installation.caller.operator("POST", path, json={"reason": "complexity"})
    assert extended.status_code == 200, extended.text
    due = datetime.fromisoformat(extended.json()["due_at"])
    (question,) = remote.asked("c2")
    until = datetime.fromisoformat(question["escalates_at"])
    assert abs(due - until - ESCALATION_MARGIN) < timedelta(seconds=2)


FORGED = [
    ("a negative square", lambda m: {**m, "gram": _with(m["gram"], 0, -5)}),
    ("too large a square", lambda m: {**m, "gram": _with(m["gram"], 0, 2**60)}),
    (
        "not semidefinite",
        lambda m: {**m, "gram": _with(m["gram"], 1, int(m["gram"][0]) + 2**20)},
    ),
    ("labels exchanged", lambda m: {**m, "counts": np.array([len(m["records"]), 0, 0])}),
    ("a moment out of reach", lambda m: {**m, "moment": m["moment"] * 40}),
]


def _with(array: Any, place: int, value: int) -> Any:
    changed = array.copy()
    changed[place] = value
    return changed


@pytest.mark.parametrize("forge", [pytest.param(f, id=name) for name, f in FORGED])
def test_forged_statistics_are_refused_by_name(
    installation: Installation, remote: Remote, forge: Any
) -> None:
    import io

    before = head(installation)
    remote.rows.records[:] = [f"new-{record}" for record in remote.rows.records]
    with np.load(io.BytesIO(remote.message(remote.owned("c0")))) as arrays:
        forged = forge({name: arrays[name] for name in arrays})
    stream = io.BytesIO()
    np.savez(stream, **forged)
    answer = remote.contribute("c0", stream.getvalue())
    if answer.status_code == 422:  # refused by its shape
        return
    assert answer.status_code == 202, answer.text
    installation.drain()
    shown = installation.caller.http.get(answer.headers["location"]).json()
    assert shown["state"] == "failed"
    assert shown["failure"]
    assert head(installation) == before
    with Session(installation.services.engine) as session:
        assert len(session.exec(select(FeatureBlock)).all()) == len(remote.clients)


def test_a_block_that_was_left_in_is_noticed(
    installation: Installation, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's statistics are subtracted from the model but kept in the vault."""
    from app.vault.features import FeatureVault

    monkeypatch.setattr(FeatureVault, "rewrite", lambda *_: None)
    request_id = erase(installation, {"level": "client", "client": "c1"})
    assert state(installation, request_id) == "needs-decision"
    with Session(installation.services.engine) as session:
        assert session.get(Certificate, request_id) is None
        request = session.get_one(ErasureRequest, request_id)
        assert "3 retained-set, 4 purge" in (request.reason or "")
    shown = installation.caller.operator("GET", f"/v1/models/{MODEL}")
    assert (shown.status_code, shown.json()["state"]) == (200, "quarantined")


def test_rows_are_refused_where_statistics_are_expected(
    installation: Installation, remote: Remote
) -> None:
    from tests.small import pack, rows

    answer = remote.contribute("c0", pack(rows(1, 5, 100)))
    assert answer.status_code == 422


def test_a_statistics_model_is_registered_without_rows(installation: Installation) -> None:
    answer = installation.caller.register_model(data="statistics")
    assert answer.status_code == 422
    assert "without rows" in answer.text


def test_a_first_message_that_fails_does_not_fail_the_model(
    installation: Installation,
) -> None:
    import io

    remote = Remote(installation)
    remote.register()
    with np.load(io.BytesIO(remote.message(remote.owned("c0")))) as arrays:
        forged = {name: arrays[name] for name in arrays}
    forged["gram"] = forged["gram"] * 0
    stream = io.BytesIO()
    np.savez(stream, **forged)
    assert remote.contribute("c0", stream.getvalue()).status_code == 202
    installation.drain()
    remote.contribute_all()
    assert head(installation) == remote.head_without(set())


def test_a_message_of_a_single_record_is_answered_with_a_warning(
    installation: Installation, remote: Remote
) -> None:
    wanted = remote.owned("c2")[:2]
    remote.rows.records[:] = [f"new-{record}" for record in remote.rows.records]
    several = remote.contribute("c2", remote.message(remote.owned("c2")[1:3])).json()
    single = remote.contribute("c2", remote.message(remote.owned("c2")[:1])).json()
    assert several["warnings"] == []
    assert "single record" in single["warnings"][0]
    installation.drain()
    erase(installation, {"level": "sample", "records": wanted[:1]})
    assert "single record" in remote.asked("c2")[0]["warnings"][0]
