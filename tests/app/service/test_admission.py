"""Requests that arrive together: each is judged as if it came alone, in their order."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.orm.attributes import flag_modified
from sqlmodel import Session, col, select

from app.ledger.receipt import read_receipt
from app.schemas.requests import NewRequest
from app.service.admission import FEW, Entered, Submission, admit, opening
from lethe.signing.http import SignedBy, new_nonce
from lethe.signing.keys import generate_key
from models import (
    ErasureRequest,
    Job,
    Record,
    RequesterKey,
    RequestEvent,
    UsedNonce,
)
from models.database import bulk
from tests.installation import Installation
from tests.small import MODEL


def submission(made: Installation, scope: dict[str, Any], **changes: Any) -> Submission:
    """Return what the API hands over once a signature of alice's, or of `keyid`, verified."""
    keyid = changes.pop("keyid", made.caller.keyid)
    idempotency_key = changes.pop("idempotency_key", None)
    now = datetime.now(UTC)
    with Session(made.services.engine) as session:
        key = made.services.keys.read(session, keyid)
    wanted = NewRequest.model_validate({"model": MODEL, "scope": scope, **changes})
    signed = SignedBy(keyid, new_nonce(), now, now + timedelta(minutes=5), frozenset())
    digest = sha256(wanted.model_dump_json().encode()).hexdigest()
    return Submission(signed, key, wanted, digest, idempotency_key)


def records(made: Installation, *names: str, **changes: Any) -> Submission:
    return submission(made, {"level": "sample", "records": list(names)}, **changes)


def together(made: Installation, *submissions: Submission) -> list[Entered | Exception]:
    """Admit submissions in one transaction."""
    reads = opening(made.services, submissions)
    return made.services.ledger.transact(
        lambda tx: admit(made.services, tx, submissions, tx.answers), opening=lambda: reads
    )


def outcomes(found: list[Entered | Exception]) -> list[str]:
    """Return `new`, `repeated`, or the name of the error, of each."""
    return [
        type(one).__name__.removesuffix("Error")
        if isinstance(one, Exception)
        else "repeated"
        if one.new is None
        else "new"
        for one in found
    ]


@contextmanager
def statements(made: Installation) -> Iterator[list[str]]:
    """Collect the statements of the database."""
    seen: list[str] = []
    ways = {"run": bulk.run, "commit": bulk.commit}

    def noting(way: Callable[..., Any]) -> Callable[..., Any]:
        def noted(connection: Connection, *statements: bulk.Statement) -> Any:
            seen.extend(one.text for one in statements)
            return way(connection, *statements)

        return noted

    def note(*arguments: Any) -> None:
        seen.append(arguments[2])

    event.listen(made.services.engine, "before_cursor_execute", note)
    with pytest.MonkeyPatch.context() as patch:
        for name, way in ways.items():
            patch.setattr(bulk, name, noting(way))
        yield seen
    event.remove(made.services.engine, "before_cursor_execute", note)


def claims(made: Installation) -> dict[str, str | None]:
    with Session(made.services.engine) as session:
        query = select(Record.record, Record.claimed_by)
        return {record: by for record, by in session.exec(query) if by is not None}


def test_thirty_requests_cost_as_many_statements_as_one(ready: Installation) -> None:
    with statements(ready) as alone:
        assert outcomes(together(ready, records(ready, "r0"))) == ["new"]
    batch = [records(ready, f"r{number}") for number in range(1, 31)]
    with statements(ready) as seen:
        assert outcomes(together(ready, *batch)) == ["new"] * 30
    # Entries and nodes of the log are as many rows, and still one statement each.
    assert len(seen) <= len(alone)
    ready.drain()
    ready.check()


def test_the_first_of_two_that_name_one_record_gets_it(ready: Installation) -> None:
    first, second, third = together(
        ready, records(ready, "r1", "r2"), records(ready, "r2", "r3"), records(ready, "r3")
    )
    assert outcomes([first, second, third]) == ["new", "ScopeChanged", "new"]
    assert isinstance(first, Entered)
    assert isinstance(third, Entered)
    assert claims(ready) == {
        "r1": first.request_id,
        "r2": first.request_id,
        "r3": third.request_id,
    }


@pytest.mark.parametrize("first", [True, False])
def test_a_client_and_a_record_of_the_client_in_one_batch(
    ready: Installation, first: bool
) -> None:
    one, client = records(ready, "r1"), submission(ready, {"level": "client", "client": "c1"})
    batch = (one, client) if first else (client, one)
    found = outcomes(together(ready, *batch))
    assert found == (["new", "new"] if first else ["new", "ScopeChanged"])
    with Session(ready.services.engine) as session:
        query = select(RequestEvent).where(RequestEvent.event == "request.received")
        claimed = [row.payload["records"] for row in session.exec(query)]
    assert sorted(claimed) == ([1, 7] if first else [8])
    ready.drain()
    ready.check()


def test_many_named_records_are_claimed_like_few(ready: Installation, monkeypatch: Any) -> None:
    monkeypatch.setattr("app.service.admission.FEW", 1)
    found = together(
        ready, records(ready, "r1", "r2"), records(ready, "r2", "r4"), records(ready, "r2")
    )
    assert outcomes(found) == ["new", "ScopeChanged", "ScopeChanged"]
    assert sorted(claims(ready)) == ["r1", "r2"]
    assert FEW > 1
    ready.drain()
    ready.check()


def test_a_nonce_counts_once_in_a_batch_and_across_batches(ready: Installation) -> None:
    one = records(ready, "r1")
    again = replace(records(ready, "r2"), signed=one.signed)
    assert outcomes(together(ready, one, again)) == ["new", "SignatureReplayed"]
    assert outcomes(together(ready, again)) == ["SignatureReplayed"]
    assert sorted(claims(ready)) == ["r1"]


def test_the_nonce_of_a_refused_request_is_spent(ready: Installation) -> None:
    refused = records(ready, "nobody")
    assert outcomes(together(ready, refused)) == ["ScopeChanged"]
    with Session(ready.services.engine) as session:
        assert session.get(UsedNonce, (refused.signed.keyid, refused.signed.nonce))
    # Submitted once more by the service itself, its nonce is not asked for again.
    assert outcomes(together(ready, refused.again())) == ["ScopeChanged"]


def test_one_idempotency_key_is_one_request(ready: Installation) -> None:
    one = records(ready, "r1", idempotency_key="a")
    same = replace(records(ready, "r1", idempotency_key="a"))
    other = records(ready, "r2", idempotency_key="a")
    found = together(ready, one, same, other)
    assert outcomes(found) == ["new", "repeated", "IdempotencyMismatch"]
    later = together(ready, records(ready, "r1", idempotency_key="a"))
    ids = {entry.request_id for entry in (*found[:2], *later) if isinstance(entry, Entered)}
    assert len(ids) == 1
    with Session(ready.services.engine) as session:
        assert len(session.exec(select(ErasureRequest)).all()) == 1


def test_another_signers_idempotency_key_is_another(ready: Installation) -> None:
    bob = replace(ready.caller, keyid="bob", key=generate_key("ed25519"))
    assert bob.register_key().status_code == 201
    batch = [
        records(ready, "r1", idempotency_key="a"),
        records(ready, "r2", idempotency_key="a", keyid="bob"),
    ]
    assert outcomes(together(ready, *batch)) == ["new", "new"]


def test_a_key_that_was_revoked_since_its_signature_verified_counts_no_more(
    ready: Installation,
) -> None:
    late = records(ready, "r1")
    assert ready.caller.operator("DELETE", f"/v1/keys/{ready.caller.keyid}").status_code == 200
    assert outcomes(together(ready, late)) == ["KeyUnknown"]
    assert claims(ready) == {}


def test_a_signature_that_another_row_of_the_key_verified_counts_no_more(
    ready: Installation,
) -> None:
    late = records(ready, "r1")
    changed = replace(late, key=replace(late.key, ref=str(uuid.uuid4()), row=()))
    assert outcomes(together(ready, changed)) == ["KeyUnknown"]


@pytest.mark.parametrize("column", ["role", "public_key", "client", "mac", "created_at"])
def test_a_row_that_was_changed_beside_lethe_since_counts_no_more(
    ready: Installation, column: str
) -> None:
    late = records(ready, "r1")
    with Session(ready.services.engine) as session:
        other = "'2026-01-02 00:00:00'" if column == "created_at" else "'other'"
        if column == "client":  # sealed
            other = "CAST('other' AS BYTEA)" if "postgresql" in str(session.bind) else "x'00'"
        session.connection().execute(text(f"UPDATE requester_keys SET {column} = {other}"))
        session.commit()
    assert outcomes(together(ready, late)) == ["KeyUnknown"]
    assert claims(ready) == {}


def test_a_row_from_before_a_revocation_counts_no_more(ready: Installation) -> None:
    late = records(ready, "r1")
    with Session(ready.services.engine) as session:
        before = session.get_one(RequesterKey, ready.caller.keyid).model_dump()
    assert ready.caller.operator("DELETE", f"/v1/keys/{ready.caller.keyid}").status_code == 200
    with Session(ready.services.engine) as session:
        row = session.get_one(RequesterKey, ready.caller.keyid)
        row.revoked_at, row.mac = None, before["mac"]
        session.commit()
    assert outcomes(together(ready, late)) == ["KeyUnknown"]


def test_a_row_that_was_sealed_anew_with_the_same_content_still_counts(
    ready: Installation,
) -> None:
    caller = replace(ready.caller, keyid="bound", key=generate_key("ed25519"))
    assert caller.register_key(client="c1").status_code == 201
    late = records(ready, "r1", keyid="bound")
    with Session(ready.services.engine) as session:
        flag_modified(session.get_one(RequesterKey, "bound"), "client")
        session.commit()
    assert outcomes(together(ready, late)) == ["new"]


def test_a_bound_key_claims_its_own_records_alone(ready: Installation) -> None:
    for bound in ({"client": "c1"}, {"subject": "c1"}):
        (name,) = bound
        caller = replace(ready.caller, keyid=name, key=generate_key("ed25519"))
        assert caller.register_key(**bound).status_code == 201
    found = together(
        ready,
        records(ready, "r1", keyid="client"),  # c1's
        records(ready, "r6", "r2", keyid="client"),  # r2 is c2's
        records(ready, "r6", keyid="subject"),
        records(ready, "r2", keyid="subject"),
    )
    assert outcomes(found) == ["new", "ScopeChanged", "new", "ScopeChanged"]
    assert sorted(claims(ready)) == ["r1", "r6"]


def test_what_can_never_be_accepted_disturbs_nobody(ready: Installation) -> None:
    found = together(
        ready,
        records(ready, "r1", model="unknown"),
        records(ready, "r1", method="retrain"),
        records(ready, "r1"),
    )
    assert outcomes(found) == ["UnknownModel", "MethodUnavailable", "new"]


def test_receipts_from_memory_are_those_of_the_database(ready: Installation) -> None:
    ledger = ready.services.ledger
    for size in (1, 5, 3):
        batch = [records(ready, f"r{len(claims(ready)) + number}") for number in range(size)]
        for entered in together(ready, *batch):
            assert isinstance(entered, Entered)
            assert entered.new is not None
            index = entered.new.log_index
            with Session(ready.services.engine) as session:
                assert ledger.recent_receipt(index) == read_receipt(session, index)
    assert ledger.recent_receipt(0) is None  # long ago, or another process's


def test_one_worker_is_sent_to_each_model_that_nobody_works_for(ready: Installation) -> None:
    first = together(ready, records(ready, "r1"), records(ready, "r2"))
    nudges = [one.new.nudge for one in first if isinstance(one, Entered) and one.new]
    with Session(ready.services.engine) as session:
        query = select(Job.id).where(Job.kind == "erase").order_by(col(Job.seq))
        assert nudges == [session.exec(query).first(), None]
    (second,) = together(ready, records(ready, "r3"))
    assert isinstance(second, Entered)
    assert second.new is not None
    assert second.new.nudge is None  # whoever finishes the first looks for the next
