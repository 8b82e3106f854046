"""A key has no more open requests than it may have, however they arrive."""

import json
import re
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, get_args

import pytest
from sqlalchemy import Connection, insert, text, update
from sqlmodel import Session, col, select

from app.ledger.transaction import Transaction
from app.problems import QuotaError
from app.reconcile.model_events import CLOSED
from app.schemas.requests import State
from app.service.acceptance import ADMISSION
from app.service.access import quota
from app.service.admission import Entered
from app.service.context import Services, open_services
from lethe.client.answers import FINAL_STATES
from lethe.signing.keys import generate_key
from models import ErasureRequest, UsedNonce
from models.database import bulk
from models.erasure_request import ENDED
from tests.app.api.test_requests import problem, stored
from tests.app.service.test_admission import (
    claims,
    outcomes,
    records,
    statements,
    submission,
    together,
)
from tests.installation import Installation
from tests.small import MODEL, Caller
from tests.workers.jobs.desk.test_cases import opened
from tests.workers.jobs.desk.test_people import ANN, BOB, named

INDEX = "ix_erasure_requests_open"
COUNTS = re.compile(r"SELECT given\.keyid, \(SELECT count")


def limit(made: Installation, most: int) -> None:
    """Have a key's open requests bounded by `most`, 0 for no bound."""
    object.__setattr__(made.services.settings, "open_requests_per_key", most)


def another(made: Installation, keyid: str = "bob") -> Caller:
    """Register a key of somebody else."""
    caller = replace(made.caller, keyid=keyid, key=generate_key("ed25519"))
    assert caller.register_key().status_code == 201
    return caller


def held(connection: Connection, *keyids: str, most: int = 100) -> dict[str, int]:
    """Return how many open requests these keys have."""
    (rows,) = bulk.run(connection, quota.counting(connection.dialect, keyids, most))
    return dict(rows)


def test_a_key_at_its_limit_is_refused_and_nothing_is_stored(ready: Installation) -> None:
    limit(ready, 2)
    for record in ("r1", "r2"):
        assert ready.caller.erase_records(record).status_code == 202
    before, claimed = stored(ready), claims(ready)
    refused = ready.caller.erase_records("r3", nonce="the-nonce-of-a-refused-one")
    body = problem(refused, 429, "quota")
    assert "2 erasure requests" in body["detail"]
    assert "LETHE_OPEN_REQUESTS_PER_KEY" in body["detail"]
    assert ready.caller.keyid not in refused.text
    assert "retry-after" not in refused.headers  # nobody knows when one ends
    assert (stored(ready), claims(ready)) == (before, claimed)
    # As after any refusal, who saw the call cannot send it.
    with Session(ready.services.engine) as session:
        assert session.get(UsedNonce, (ready.caller.keyid, "the-nonce-of-a-refused-one"))
    assert another(ready).erase_records("r3").status_code == 202
    ready.drain()
    ready.check()


def test_a_preview_says_so_too(ready: Installation) -> None:
    asked = {"model": MODEL, "scope": {"level": "sample", "records": ["r2"]}}

    def preview() -> Any:
        return ready.caller.signed("POST", "/v1/requests/preview", json.dumps(asked).encode())

    limit(ready, 1)
    assert preview().status_code == 200
    assert ready.caller.erase_records("r1").status_code == 202
    problem(preview(), 429, "quota")
    limit(ready, 0)
    assert preview().status_code == 200


def test_an_end_makes_room_for_the_refused_request_as_it_is(ready: Installation) -> None:
    limit(ready, 1)
    headers = {"Idempotency-Key": '"once"'}
    assert ready.caller.erase_records("r1").status_code == 202
    problem(ready.caller.erase_records("r2", headers=headers), 429, "quota")
    ready.drain()  # certified
    second = ready.caller.erase_records("r2", headers=headers)
    assert second.status_code == 202
    problem(ready.caller.erase_records("r3"), 429, "quota")
    path = f"/v1/requests/{second.json()['id']}"
    assert ready.caller.signed("DELETE", path).json()["state"] == "withdrawn"
    assert ready.caller.erase_records("r3").status_code == 202


def test_what_was_accepted_gets_its_answer_again_at_the_limit(ready: Installation) -> None:
    limit(ready, 1)
    headers = {"Idempotency-Key": '"once"'}
    first = ready.caller.erase_records("r1", headers=headers)
    again = ready.caller.erase_records("r1", headers=headers)
    assert again.status_code == 202
    assert again.json()["id"] == first.json()["id"]
    problem(ready.caller.erase_records("r2", headers=headers), 422, "idempotency-key-reused")


def test_those_of_one_batch_count_each_other(ready: Installation) -> None:
    limit(ready, 2)
    assert ready.caller.erase_records("r0").status_code == 202
    found = together(
        ready,
        records(ready, "nobody"),  # what is not stored takes nobody's place
        records(ready, "r1", idempotency_key="a"),
        records(ready, "r2"),
        records(ready, "r1", idempotency_key="a"),
    )
    assert outcomes(found) == ["ScopeChanged", "new", "Quota", "repeated"]
    assert sorted(claims(ready)) == ["r0", "r1"]
    ready.drain()
    ready.check()


def test_a_scope_of_many_records_is_one_request(ready: Installation) -> None:
    limit(ready, 1)
    client = submission(ready, {"level": "client", "client": "c1"})
    assert outcomes(together(ready, client, records(ready, "r2"))) == ["new", "Quota"]
    assert len(claims(ready)) == 8


def test_each_key_of_a_batch_has_its_own_count(ready: Installation) -> None:
    limit(ready, 1)
    another(ready)
    found = together(
        ready,
        records(ready, "r1"),
        records(ready, "r2", keyid="bob"),
        records(ready, "r3", keyid="bob"),
        records(ready, "r4"),
    )
    assert outcomes(found) == ["new", "new", "Quota", "Quota"]


@pytest.fixture
def second(ready: Installation) -> Iterator[Services]:
    """Another API process of the installation: its own ledger, log tail and committer."""
    services = replace(open_services(ready.settings), dispatcher=ready.dispatcher)
    yield services
    services.close()


def test_two_processes_together_admit_no_more(ready: Installation, second: Services) -> None:
    most = 5
    limit(ready, most)
    processes = (ready.services, second)
    sent = [records(ready, f"r{number}") for number in range(16)]

    def send(number: int) -> Entered | Exception:
        services = processes[number % 2]
        try:
            return services.committer.enqueue(ADMISSION, (services, sent[number])).result()
        except QuotaError as error:
            return error

    with ThreadPoolExecutor(len(sent)) as pool:
        found = outcomes(list(pool.map(send, range(len(sent)))))
    assert sorted(found) == ["Quota"] * (len(sent) - most) + ["new"] * most
    assert len(claims(ready)) == most
    ready.check()


def test_the_one_that_waits_for_the_lock_counts_what_its_holder_stored(
    ready: Installation, second: Services
) -> None:
    """What a process opens its transaction with is read after it has the log's lock."""
    limit(ready, 1)
    first, other = records(ready, "r1"), records(ready, "r2")
    waiting: list[Future[Entered]] = []

    def holding(tx: Transaction) -> list[Entered | Exception]:
        waiting.append(second.committer.enqueue(ADMISSION, (second, other)))
        items = [(ready.services, first)]
        answers = tx.read(ADMISSION.opening(items))
        return ADMISSION(tx, items, answers)

    assert outcomes(ready.services.ledger.transact(holding)) == ["new"]
    with pytest.raises(QuotaError):
        waiting[0].result()


def test_a_batch_costs_one_statement_and_none_without_a_limit(ready: Installation) -> None:
    another(ready)
    assert outcomes(together(ready, records(ready, "r20"))) == ["new"]  # reads what is kept
    seen: dict[int, list[str]] = {}
    for most, first in ((0, 0), (100, 10)):
        limit(ready, most)
        batch = [
            records(ready, f"r{first + number}", keyid="bob" if number % 2 else "alice")
            for number in range(10)
        ]
        with statements(ready) as seen[most]:
            assert outcomes(together(ready, *batch)) == ["new"] * 10
    assert [one for one in seen[0] if COUNTS.match(one)] == []
    assert len([one for one in seen[100] if COUNTS.match(one)]) == 1
    assert len(seen[100]) == len(seen[0]) + 1


def test_open_is_what_can_still_change(ready: Installation) -> None:
    assert ready.caller.erase_records("r1").status_code == 202
    keyid = ready.caller.keyid
    counted = {}
    with ready.services.engine.connect() as connection:
        for state in get_args(State):
            connection.execute(update(ErasureRequest).values(state=state))
            counted[state] = held(connection, keyid)[keyid]
    assert counted == {state: int(state not in ENDED) for state in get_args(State)}
    assert set(ENDED) == set(CLOSED) == FINAL_STATES


def test_requests_of_cases_count_for_no_key(ready: Installation) -> None:
    assert ready.caller.register_model(named(), ref="named").status_code == 201
    ready.drain()
    limit(ready, 1)
    assert ready.caller.erase_records("r3").status_code == 202
    assert opened(ready, ANN).status_code == 201  # whatever a key has open
    with Session(ready.services.engine) as session:
        of_case = select(ErasureRequest).where(col(ErasureRequest.case_ref).is_not(None))
        assert [one.keyid for one in session.exec(of_case)] == [None]
    ready.drain()
    assert opened(ready, BOB).status_code == 201
    assert ready.caller.erase_records("r4").status_code == 202  # the case's is none of its own


def test_open_requests_are_counted_by_their_index_alone(ready: Installation) -> None:
    """Beside thousands that have ended, and no further than the limit."""
    engine, keyid = ready.services.engine, ready.caller.keyid
    assert ready.caller.erase_records("r1").status_code == 202
    with engine.begin() as connection:
        like = connection.execute(select(ErasureRequest)).one()._asdict()
        rows = [
            like
            | {"id": str(uuid.uuid4()), "ref": str(uuid.uuid4())}
            | {"state": "received" if number % 100 == 0 else "certified"}
            for number in range(2000)
        ]
        connection.execute(insert(ErasureRequest), rows)
    with engine.connect() as connection:
        assert held(connection, keyid, "nobody") == {keyid: 21, "nobody": 0}
        assert held(connection, keyid, most=7) == {keyid: 7}
        explain = "EXPLAIN QUERY PLAN"
        if engine.dialect.name == "postgresql":  # which would read so small a table whole
            explain = "EXPLAIN"
            for way in ("seqscan", "bitmapscan"):
                connection.execute(text(f"SET LOCAL enable_{way} = off"))
        one = quota.counting(engine.dialect, [keyid], 10_000)
        explained = replace(one, text=f"{explain} {one.text}")
        plan = " ".join(str(row) for row in bulk.run(connection, explained)[0])
    sqlite, postgresql = f"COVERING INDEX {INDEX} (keyid=?", f"Index Only Scan using {INDEX}"
    assert (sqlite if engine.dialect.name == "sqlite" else postgresql) in plan, plan
