import json
import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlmodel import Session

from app.ledger.journal import (
    opening,
    record_key_event,
    record_model_event,
    record_request_event,
)
from app.ledger.sequencer import Ledger
from lethe.log.entries import (
    CommitmentError,
    EntryError,
    check_commitment,
    commit_event,
    parse_leaf,
)
from models import ErasureRequest, KeyEvent, LogEntry, RequestEvent
from tests.app.ledger.samples import stored_leaves, submit


def test_an_event_is_committed_to_and_opened_with_its_key(ledger: Ledger) -> None:
    request_id = submit(ledger)
    with Session(ledger.engine) as session:
        request = session.get_one(ErasureRequest, request_id)
        event = session.get_one(RequestEvent, request.log_index)
        entry = session.get_one(LogEntry, request.log_index)
        leaf = parse_leaf(entry.leaf)
        assert (leaf.kind, leaf.event) == ("erasure-event", "request.received")
        assert (entry.kind, entry.event, entry.ref) == (leaf.kind, leaf.event, request.ref)
        assert leaf.day is not None
        assert entry.day == leaf.day.isoformat() == f"{event.at:%Y-%m-%d}"
        assert leaf.commitment is not None
        said = opening(request.ref, event.event, event.at, event.payload)
        check_commitment(request.event_key, said, leaf.commitment)
        for lie in (
            opening(request.ref, "request.refused", event.at, event.payload),
            opening(request.ref, event.event, event.at, {**event.payload, "records": 4}),
            opening(request.ref, event.event, event.at + timedelta(1), event.payload),
            opening(request.id, event.event, event.at, event.payload),
        ):
            with pytest.raises(CommitmentError):
                check_commitment(request.event_key, lie, leaf.commitment)
        with pytest.raises(CommitmentError):
            check_commitment(bytes(32), said, leaf.commitment)


def test_a_leaf_holds_nothing_of_the_person(ledger: Ledger) -> None:
    request_id = submit(ledger, "carol@example.org")
    (leaf,) = stored_leaves(ledger.engine)
    spec = json.loads(leaf)["spec"]
    assert set(spec) == {"at", "commitment", "event", "ref"}
    assert spec["at"].endswith("T00:00:00Z")
    for private in (b"carol", b"example.org", request_id.encode()):
        assert private not in leaf


def test_the_same_event_of_two_requests_has_unlinkable_leaves(ledger: Ledger) -> None:
    submit(ledger, "carol@example.org")
    submit(ledger, "carol@example.org")
    first, second = (parse_leaf(leaf) for leaf in stored_leaves(ledger.engine))
    assert first.commitment != second.commitment
    assert first.ref != second.ref


def test_an_opening_spells_a_time_in_one_way() -> None:
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    cet = noon.astimezone(timezone(timedelta(hours=1)))
    assert opening("r", "e", noon, {})["at"] == "2026-01-02T12:00:00.000000Z"
    key = bytes(32)
    said, again = (opening("r", "e", at, {}) for at in (noon, cet))
    assert commit_event(key, said) == commit_event(key, again)


def test_a_model_event_carries_digests(ledger: Ledger) -> None:
    digests = {"head": "a" * 64, "statistics": "b" * 64}
    index = ledger.transact(lambda tx: record_model_event(tx, "m", "model.version", digests))
    leaf = parse_leaf(stored_leaves(ledger.engine)[index])
    assert (leaf.kind, leaf.event, leaf.ref) == ("model-event", "model.version", "m")
    assert dict(leaf.digests) == digests


def test_an_event_of_a_key_names_nobody_and_its_opening_is_stored(ledger: Ledger) -> None:
    said = {"keyid": "alice", "by": "desk"}
    ref = str(uuid.uuid4())
    index = ledger.transact(lambda tx: record_key_event(tx, ref, "key.confirmed", said))
    data = stored_leaves(ledger.engine)[index]
    assert b"alice" not in data
    assert b"desk" not in data
    leaf = parse_leaf(data)
    assert (leaf.kind, leaf.event, leaf.ref) == ("key-event", "key.confirmed", ref)
    with Session(ledger.engine) as session:
        row = session.get_one(KeyEvent, index)
        assert leaf.commitment is not None
        opened = opening(row.ref, row.event, row.at, row.payload)
        check_commitment(row.key, opened, leaf.commitment)
        assert row.payload == said


def test_a_payload_that_is_no_json_stores_nothing(ledger: Ledger) -> None:
    request_id = submit(ledger)
    with pytest.raises(EntryError):
        ledger.transact(
            lambda tx: record_request_event(
                tx,
                tx.session.get_one(ErasureRequest, request_id),
                "request.received",
                {"scope": {"loss": float("nan")}},
            )
        )
    assert len(stored_leaves(ledger.engine)) == 1
