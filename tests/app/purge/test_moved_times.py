"""Tables that say of a retention what the log does not: nothing is destroyed, nothing signed."""

import json
from hashlib import sha256
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text
from sqlmodel import Session, select

from app.cli.retention import retention as command
from app.purge import retention
from app.reconcile.holds import HoldsChangedError
from app.service.desk import decisions as desk
from app.service.desk import people
from lethe.catalogue import RETAINED
from lethe.certificates.evidence import SCORES
from models import Artifact, Case, ErasureRequest, RequestEvent, Verification
from tests.app.purge.test_retention import BOTH, certified, entries, late
from tests.app.service.test_deletion import ANN
from tests.installation import Installation
from tests.small import MODEL

LONG_AGO = "2015-01-01 00:00:00.000000"
OTHER = "elsewhere"


def write(at: Installation, statement: str, **values: Any) -> None:
    with at.services.engine.begin() as connection:
        assert connection.execute(text(statement), values).rowcount


def row(at: Installation) -> ErasureRequest:
    with Session(at.services.engine) as session:
        return session.exec(select(ErasureRequest)).one()


def held(at: Installation, ref: str) -> None:
    body = {"ref": ref, "reason": "litigation"}
    assert at.caller.operator("POST", "/v1/holds", json=body).status_code == 201


def nothing_ends(at: Installation, differs: dict[str, int], **periods: int) -> None:
    """Run twice, as a daily run does, and check that the log says nothing of it."""
    services = late(at, **periods) if periods else at.services
    planned = retention.plan(services)
    assert not planned.removed
    for _ in range(2):
        done = retention.run(services)
        assert (done.removed, done.differs, done.log_index) == ({}, differs, None)
    assert entries(at) == []


def end(at: Installation, state: str = "certified") -> None:
    """Give an open request the state and the times of one that ended long ago."""
    write(
        at,
        "UPDATE erasure_requests SET state = :state, received_at = :then",
        state=state,
        then=LONG_AGO,
    )
    write(at, "UPDATE request_events SET at = :then", then=LONG_AGO)


def evidence_of(at: Installation, request: str) -> Artifact:
    with Session(at.services.engine) as session:
        found = session.get_one(Verification, request)
        return session.get_one(Artifact, found.evidence_id)


def exchange(at: Installation, request: str, other: str) -> Artifact:
    """Have the tables name another request's evidence as a request's own; return it."""
    own, held_one = evidence_of(at, request), evidence_of(at, other)
    write(
        at,
        "UPDATE verifications SET evidence_id = :held WHERE request_id = :request",
        held=held_one.id,
        request=request,
    )
    write(
        at,
        "UPDATE artifacts SET digest = :own WHERE id = :held",
        own=own.digest,
        held=held_one.id,
    )
    return held_one


def hold(at: Installation, request: str) -> None:
    with Session(at.services.engine) as session:
        ref = session.get_one(ErasureRequest, request).ref
    held(at, ref)


def test_held_evidence_is_not_destroyed_as_that_of_another(ready: Installation) -> None:
    first, second = certified(ready, "r1"), certified(ready, "r2")
    hold(ready, second)
    kept = exchange(ready, first, second)
    done = retention.run(late(ready))
    assert (done.removed, done.differs, entries(ready)) == ({}, {"evidence": 1}, [])
    with Session(ready.services.engine) as session:
        assert session.get_one(Artifact, kept.id).wrapped_key == kept.wrapped_key
    assert (ready.settings.data_dir / "artifacts" / kept.id).exists()


def test_held_evidence_is_not_destroyed_as_evidence_that_was_put_back(
    ready: Installation,
) -> None:
    """No entry of a request whose scope was destroyed can be opened; its certificate can."""
    first = certified(ready, "r1")
    before = evidence_of(ready, first)
    file = ready.settings.data_dir / "artifacts" / before.id
    sealed = file.read_bytes()
    assert retention.run(late(ready)).removed == BOTH
    second = certified(ready, "r2")
    hold(ready, second)
    kept = exchange(ready, first, second)
    done = retention.run(late(ready))
    assert (done.removed, done.differs) == ({}, {"evidence": 1})
    with Session(ready.services.engine) as session:
        assert session.get_one(Artifact, kept.id).wrapped_key == kept.wrapped_key
    # The request's own evidence, as a backup of files and one row brings it back, is destroyed.
    write(
        ready,
        "UPDATE verifications SET evidence_id = :id WHERE request_id = :request",
        id=before.id,
        request=first,
    )
    write(
        ready,
        "UPDATE artifacts SET wrapped_key = :key WHERE id = :id",
        key=before.wrapped_key,
        id=before.id,
    )
    file.write_bytes(sealed)
    assert retention.run(late(ready)).removed == {"evidence": 1}
    assert evidence_of(ready, first).wrapped_key is None


def test_held_scores_are_not_destroyed_with_evidence_that_was_put_back(
    ready: Installation,
) -> None:
    """The row of a held request's judgement is moved to the request that has no scope left."""
    first = certified(ready, "r1")
    before = evidence_of(ready, first)
    file = ready.settings.data_dir / "artifacts" / before.id
    sealed = file.read_bytes()
    assert retention.run(late(ready)).removed == BOTH
    second = certified(ready, "r2")
    hold(ready, second)
    with Session(ready.services.engine) as session:
        kept = ready.services.artifacts.put(session, SCORES, b"scores").id
        judged = session.exec(
            select(RequestEvent).where(
                RequestEvent.request_id == second, RequestEvent.event == "request.verified"
            )
        ).one()
        judged.payload = {**judged.payload, SCORES: sha256(b"scores").hexdigest()}
        judged.request_id = first
        session.commit()
    put_back = "UPDATE artifacts SET wrapped_key = :key WHERE id = :id"
    write(ready, put_back, key=before.wrapped_key, id=before.id)
    file.write_bytes(sealed)
    assert retention.run(late(ready)).removed == {"evidence": 1}
    assert evidence_of(ready, first).wrapped_key is None
    with Session(ready.services.engine) as session:
        assert session.get_one(Artifact, kept).wrapped_key is not None


@pytest.mark.parametrize("state", ["certified", "refused", "withdrawn"])
def test_an_open_request_is_not_emptied(ready: Installation, state: str) -> None:
    ready.caller.erase_records("r1", "r2")
    before = row(ready)
    end(ready, state)
    nothing_ends(ready, {"scope": 1})
    assert row(ready).scope == before.scope


def test_an_event_that_the_log_does_not_have_ends_nothing(ready: Installation) -> None:
    """Its opening is that of an entry of another request."""
    certified(ready, "r1")
    ready.caller.erase_records("r2")
    write(
        ready,
        "UPDATE request_events SET request_id = (SELECT id FROM erasure_requests WHERE state = "
        "'received') WHERE event = 'request.certified'",
    )
    write(
        ready,
        "UPDATE erasure_requests SET state = 'certified' WHERE state = 'received'",
    )
    done = retention.run(late(ready))
    assert (done.removed, done.differs) == ({}, {"evidence": 1, "scope": 1})


def test_a_request_beside_one_that_differs_ends(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "AT_ONCE", 1)
    for record in ("r1", "r2", "r3"):
        certified(ready, record)
    write(
        ready,
        "UPDATE erasure_requests SET received_at = :then WHERE id = (SELECT min(id) FROM "
        "erasure_requests)",
        then=LONG_AGO,
    )
    done = retention.run(late(ready))
    assert done.removed == {"evidence": 2, "scope": 2}
    assert done.differs == {"evidence": 1}


def test_a_request_is_not_moved_into_the_past(ready: Installation) -> None:
    certified(ready, "r1")
    end(ready)
    nothing_ends(ready, {"evidence": 1})


def test_the_evidence_of_another_request_is_kept(ready: Installation) -> None:
    first, second = certified(ready, "r1"), certified(ready, "r2")
    with Session(ready.services.engine) as session:
        ref = session.get_one(ErasureRequest, second).ref
        kept = session.get_one(Verification, second).evidence_id
    held(ready, ref)
    write(
        ready,
        "UPDATE verifications SET evidence_id = :kept WHERE request_id = :first",
        kept=kept,
        first=first,
    )
    done = retention.run(late(ready))
    assert (done.removed, done.differs) == ({}, {"evidence": 1})
    with Session(ready.services.engine) as session:
        assert session.get_one(Artifact, kept).wrapped_key is not None


def contacted(at: Installation) -> str:
    assert people.import_identities(at.services, MODEL, [("r1", ANN)], "desk") == 1
    named = {name: digest.hex() for name, digest in ANN.digests.items()}
    body = {"person": {"kind": ANN.kind, **named}, "ticket": "T1", "contact": "ann@x.org"}
    answer = at.caller.operator("POST", "/v1/cases", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["ref"])


@pytest.mark.parametrize(
    "change",
    [
        "due_at = :then",
        "due_at = :then, received_at = :then",
        "due_at = :then, key = NULL",
    ],
)
def test_the_contact_of_an_open_case_is_kept(ready: Installation, change: str) -> None:
    contacted(ready)
    write(ready, f"UPDATE cases SET {change}", then=LONG_AGO)
    nothing_ends(ready, {})
    end(ready)
    write(ready, "UPDATE erasure_requests SET due_at = :then", then=LONG_AGO)
    nothing_ends(ready, {"scope": 1, "contact": 1})
    with Session(ready.services.engine) as session:
        assert session.exec(select(Case)).one().contact == "ann@x.org"


def test_a_case_is_kept_while_its_request_is(ready: Installation) -> None:
    contacted(ready)
    write(ready, "UPDATE erasure_requests SET case_ref = NULL")
    nothing_ends(ready, {"case": 1}, request_retention_days=0)


def test_a_case_is_not_moved_into_the_past(ready: Installation) -> None:
    contacted(ready)
    ready.drain()
    assert retention.run(late(ready, evidence_retention_days=0)).removed == {"evidence": 1}
    write(ready, "UPDATE cases SET received_at = :then", then=LONG_AGO)
    write(
        ready,
        "UPDATE erasure_requests SET case_ref = NULL, forgotten_at = :then",
        then=LONG_AGO,
    )
    done = retention.run(ready.services)
    assert (done.removed, done.differs) == ({}, {"case": 1})


def test_the_command_says_what_differs(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready.caller.erase_records("r1")
    end(ready)
    monkeypatch.setenv("LETHE_DATABASE_URL", ready.settings.resolved_database_url)
    monkeypatch.setenv("LETHE_DATA_DIR", str(ready.settings.data_dir))
    monkeypatch.setenv("LETHE_ORIGIN", ready.settings.origin)
    answer = CliRunner().invoke(command, ["run"])
    assert answer.exit_code == 1
    assert "1 left: tables and log differ" in answer.output
    shown = CliRunner().invoke(command, ["run", "--json", "--dry-run"])
    assert json.loads(shown.output)["differs"] == dict.fromkeys(RETAINED, 0) | {"scope": 1}


def test_a_model_under_another_name_is_still_held(ready: Installation) -> None:
    certified(ready, "r1", "r2")
    held(ready, MODEL)
    write(ready, "UPDATE models SET ref = :ref", ref=OTHER)
    with pytest.raises(HoldsChangedError):
        retention.run(late(ready))
    write(ready, "UPDATE models SET ref = :ref", ref=MODEL)
    assert retention.run(late(ready)).held == BOTH
    assert entries(ready) == []


def test_models_that_exchange_their_names_are_still_held(ready: Installation) -> None:
    certified(ready, "r1", "r2")
    held(ready, MODEL)
    assert ready.caller.register_model(ref=OTHER).status_code == 201
    for old, new in ((MODEL, "none"), (OTHER, MODEL), ("none", OTHER)):
        write(ready, "UPDATE models SET ref = :new WHERE ref = :old", new=new, old=old)
    nothing_ends(ready, {"evidence": 1}, request_retention_days=0)


def test_a_request_of_another_model_is_still_held(ready: Installation) -> None:
    certified(ready, "r1", "r2")
    held(ready, MODEL)
    assert ready.caller.register_model(ref=OTHER).status_code == 201
    write(
        ready,
        "UPDATE erasure_requests SET model_id = (SELECT id FROM models WHERE ref = :ref)",
        ref=OTHER,
    )
    nothing_ends(ready, {"evidence": 1}, request_retention_days=0)


def test_a_request_under_another_reference_is_still_held(ready: Installation) -> None:
    certified(ready, "r1", "r2")
    held(ready, row(ready).ref)
    write(ready, "UPDATE erasure_requests SET ref = 'x'")
    with pytest.raises(HoldsChangedError):
        retention.run(late(ready))
    assert entries(ready) == []


def test_requests_that_exchange_their_references_are_still_held(ready: Installation) -> None:
    first, second = certified(ready, "r1"), certified(ready, "r2")
    with Session(ready.services.engine) as session:
        refs = {one: session.get_one(ErasureRequest, one).ref for one in (first, second)}
    held(ready, refs[first])
    for request, ref in ((first, "x"), (second, refs[first]), (first, refs[second])):
        change = "UPDATE erasure_requests SET ref = :ref WHERE id = :id"
        write(ready, change, ref=ref, id=request)
    nothing_ends(ready, {"evidence": 1}, request_retention_days=0)


def test_a_request_without_its_case_is_still_held(ready: Installation) -> None:
    ref = contacted(ready)
    ready.drain()
    held(ready, ref)
    write(ready, "UPDATE erasure_requests SET case_ref = NULL")
    nothing_ends(ready, {}, request_retention_days=0)
    assert retention.run(late(ready)).held == BOTH | {"case": 1}


def test_a_held_case_with_other_parts_stops_everything(ready: Installation) -> None:
    held(ready, contacted(ready))
    write(ready, "UPDATE cases SET opened_by = 'somebody'")
    with pytest.raises(HoldsChangedError):
        retention.run(late(ready))


def test_a_planted_hold_of_nothing_stops_nothing(ready: Installation) -> None:
    first, _ = certified(ready, "r1"), certified(ready, "r2")
    with Session(ready.services.engine) as session:
        ref = session.get_one(ErasureRequest, first).ref
    held(ready, ref)
    columns = "kind, reason, key, placed_by, placed_at, log_index"
    write(
        ready,
        f"INSERT INTO legal_holds (id, target, {columns}) SELECT 'x', 'nobody', {columns} FROM "
        "legal_holds",
    )
    done = retention.run(late(ready))
    assert (done.removed, done.held) == (BOTH, BOTH)


def test_a_held_request_of_another_model_keeps_its_own(ready: Installation) -> None:
    """Deleting the model would destroy the evidence."""
    certified(ready, "r1")
    held(ready, row(ready).ref)
    assert ready.caller.register_model(ref=OTHER).status_code == 201
    ready.drain()
    write(
        ready,
        "UPDATE erasure_requests SET model_id = (SELECT id FROM models WHERE ref = :ref)",
        ref=OTHER,
    )
    answer = ready.caller.operator("DELETE", f"/v1/models/{MODEL}")
    assert answer.json()["type"] == "urn:lethe:problem:held"


def test_the_case_of_a_held_request_is_not_closed(ready: Installation) -> None:
    """Closing it would destroy the contact address."""
    ref = contacted(ready)
    ready.drain()
    held(ready, row(ready).ref)
    write(ready, "UPDATE erasure_requests SET case_ref = NULL")
    answer = ready.caller.operator("POST", f"/v1/cases/{ref}/close")
    assert answer.json()["type"] == "urn:lethe:problem:held"


def test_the_contact_is_kept_while_a_request_of_the_case_is_open(ready: Installation) -> None:
    contacted(ready)
    nothing_ends(ready, {}, contact_retention_days=-400)
    end(ready)
    nothing_ends(ready, {"scope": 1, "contact": 1}, contact_retention_days=-400)


def test_the_contact_is_kept_until_an_extended_deadline(ready: Installation) -> None:
    contacted(ready)
    request = row(ready)
    desk.extend(ready.services, request.ref, "dpo", "complexity")
    ready.drain()
    within = {
        "contact_retention_days": -60
    }  # after the first deadline, before the extended one
    nothing_ends(ready, {}, **within)
    write(ready, "UPDATE erasure_requests SET due_at = :then", then=LONG_AGO)
    nothing_ends(ready, {"contact": 1}, **within)
    done = retention.run(late(ready, contact_retention_days=-400))
    assert done.removed == {"contact": 1}
