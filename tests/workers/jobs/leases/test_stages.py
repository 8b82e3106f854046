"""Stages of jobs: order, leases, refusals, giving up, and the data left at the end."""

import base64
import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update
from sqlmodel import Session, col, select

from app.service import scope
from lethe.certificates.statement import parse_statement
from models import (
    Artifact,
    Certificate,
    ErasureRequest,
    FeatureBlock,
    Job,
    Record,
    Subject,
)
from models.database.types import utcnow
from tests.installation import Installation, state
from tests.small import CLIENTS, MODEL, ROWS, Caller, pack, rows
from workers import provenance
from workers.errors import RefusedError
from workers.families.ridge.family import FAMILY
from workers.families.ridge.stored import RowBlock, decode_block
from workers.jobs import (
    certify,
    execute,
    sweep,
    verify,
)
from workers.jobs.leased import leased
from workers.leases.lease import LeaseLostError, advance
from workers.methods.ridge.ridge_exact import METHOD


def jobs(installation: Installation) -> list[Job]:
    with Session(installation.services.engine) as session:
        return list(session.exec(select(Job).order_by(col(Job.seq))))


def test_requests_of_one_model_run_in_order_and_alone(ready: Installation) -> None:
    first = ready.caller.erase_records("r1").json()["id"]
    second = ready.caller.erase_records("r2").json()["id"]
    later = jobs(ready)[-1]
    execute.run(ready.services, later.id)  # nudged out of order: not its turn
    assert (state(ready, first), state(ready, second)) == ("received", "received")
    ready.drain()
    assert (state(ready, first), state(ready, second)) == ("certified", "certified")


def test_a_held_job_is_not_taken_again(ready: Installation) -> None:
    ready.caller.erase_records("r1")
    job = jobs(ready)[-1]
    with leased(ready.services, job.id, "execute") as lease:
        assert lease is not None
        with leased(ready.services, job.id, "execute") as other:
            assert other is None


def test_a_worker_that_lost_its_lease_commits_nothing(ready: Installation) -> None:
    ready.caller.erase_records("r1")
    job = jobs(ready)[-1]
    engine = ready.services.engine
    with leased(ready.services, job.id, "execute") as slow:
        assert slow is not None
        with Session(engine) as session:
            session.connection().execute(
                update(Job).values(lease_until=utcnow().replace(year=2020))
            )
            session.commit()
        with leased(ready.services, job.id, "execute") as quick:
            assert quick is not None
            with pytest.raises(LeaseLostError):
                ready.services.ledger.transact(lambda tx: advance(tx, slow, "verify"))
            ready.services.ledger.transact(lambda tx: advance(tx, quick, "verify"))
    assert jobs(ready)[-1].stage == "verify"


def test_a_certificate_names_the_code_that_executed_whichever_worker_signs_it(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ready.caller.erase_records("r1").json()["id"]
    job = jobs(ready)[-1].id
    own = provenance.code_digest(*FAMILY.rooms), provenance.environment()
    execute.run(ready.services, job)
    verify.run(ready.services, job)
    # An upgrade: the next worker has another version, on another machine.
    monkeypatch.setattr(provenance, "SHARED", ())
    monkeypatch.setattr(provenance, "versions", lambda: {"lethe": "another"})
    provenance.code_digest.cache_clear()
    try:
        assert provenance.code_digest(*FAMILY.rooms) != own[0]
        certify.run(ready.services, job)
    finally:
        provenance.code_digest.cache_clear()
    with Session(ready.services.engine) as session:
        envelope = session.get_one(Certificate, request).envelope
    said = parse_statement(base64.b64decode(envelope["payload"])).predicate.method
    assert (said.code_digest, said.environment) == own


def test_a_refusal_ends_the_request_and_frees_its_records(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RefusedError("the downdate is infeasible: refit instead")

    monkeypatch.setattr(type(METHOD), "forget", refuse)
    request = ready.caller.erase_records("r1").json()["id"]
    ready.drain()
    shown = ready.caller.http.get(f"/v1/requests/{request}").json()
    assert (shown["state"], shown["reason"]) == (
        "refused",
        "the downdate is infeasible: refit instead",
    )
    monkeypatch.undo()
    again = ready.caller.erase_records("r1").json()["id"]
    ready.drain()
    assert state(ready, again) == "certified"
    ready.check()


def test_a_job_that_keeps_failing_is_given_up_and_says_so(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("row 7 of jane.doe@example.org")

    monkeypatch.setattr(type(METHOD), "forget", explode)
    request = ready.caller.erase_records("r1").json()["id"]
    for _ in range(ready.settings.max_tries + 1):
        ready.recover()
    shown = ready.caller.http.get(f"/v1/requests/{request}").json()
    assert shown["state"] == "failed"
    assert "jane.doe" not in shown["reason"]
    assert "RuntimeError" in shown["reason"]
    ready.check()


@pytest.mark.parametrize("stage", ["verify", "certify"])
def test_what_is_executed_is_never_given_up(
    ready: Installation, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("jane.doe@example.org")

    target = {
        "verify": "workers.jobs.verify.load",
        "certify": "workers.jobs.certify.signing_issuer",
    }
    monkeypatch.setattr(target[stage], explode)
    request = ready.caller.erase_records("r1").json()["id"]
    ready.drain()
    for _ in range(2 * ready.settings.max_tries):
        ready.recover()
    assert state(ready, request) == "verifying"
    assert jobs(ready)[-1].error == f"RuntimeError at {stage}"
    monkeypatch.undo()
    ready.recover()
    assert state(ready, request) == "certified"
    ready.check()


def test_a_full_disk_is_waited_out(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(type(ready.services.artifacts), "put", full)
    ids = [ready.caller.erase_records(f"r{i}").json()["id"] for i in range(2)]
    for _ in range(2 * ready.settings.max_tries):
        ready.recover()
    assert state(ready, ids[0]) == "executing"
    monkeypatch.undo()
    ready.recover()
    assert [state(ready, one) for one in ids] == ["certified", "certified"]
    ready.check()


def left_of(installation: Installation, client: str) -> list[str]:
    with Session(installation.services.engine) as session:
        return list(
            session.exec(
                select(Record.record)
                .join(Subject, col(Record.subject_id) == col(Subject.id))
                .where(Subject.client_tag == client)
            )
        )


def test_a_client_is_erased_whole_though_an_earlier_request_was_withdrawn(
    ready: Installation,
) -> None:
    first = ready.caller.erase_records("r1").json()["id"]  # r1 is c1's
    whole = ready.caller.erase({"level": "client", "client": "c1"}).json()["id"]
    ready.caller.signed("DELETE", f"/v1/requests/{first}")
    ready.drain()
    assert state(ready, whole) == "certified"
    assert left_of(ready, "c1") == []
    ready.check()


def test_a_client_is_erased_whole_though_a_contribution_was_pending(
    ready: Installation,
) -> None:
    client = Caller(ready.caller.http, ready.caller.token, keyid="client")
    client.register_key(role="client", client="c1")
    arrays = {**rows(seed=4, count=3, first=500), "clients": np.array(["c1"] * 3)}
    path = f"/v1/models/{MODEL}/contributions"
    client.signed("POST", path, pack(arrays), content_type="application/x-npz")
    early = ready.caller.erase_records("r500")
    assert early.json()["type"] == "urn:lethe:problem:contribution-pending"
    whole = ready.caller.erase({"level": "client", "client": "c1"}).json()["id"]
    ready.drain()
    assert state(ready, whole) == "certified"
    assert left_of(ready, "c1") == []
    ready.check()


def test_a_request_whose_records_an_earlier_one_took_says_so(ready: Installation) -> None:
    client = Caller(ready.caller.http, ready.caller.token, keyid="client")
    client.register_key(role="client", client="c1")
    arrays = {**rows(seed=4, count=3, first=500), "clients": np.array(["c1"] * 3)}
    path = f"/v1/models/{MODEL}/contributions"
    client.signed("POST", path, pack(arrays), content_type="application/x-npz")
    whole = ready.caller.erase({"level": "client", "client": "c1"}).json()["id"]
    learn = jobs(ready)[-2]
    execute.run(ready.services, learn.id)  # learned, but the erasure has not begun
    named = ready.caller.erase_records("r500").json()["id"]
    ready.drain()
    assert (state(ready, whole), state(ready, named)) == ("certified", "refused")
    ready.check()


def test_a_verifier_notices_rows_of_the_client_that_remain(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = scope.forget_set

    def leave_one(*arguments: Any) -> list[scope.Claimed]:
        return [record for record in honest(*arguments) if record.record != "r1"]

    monkeypatch.setattr("workers.jobs.batch.forget_set", leave_one)
    request = ready.caller.erase({"level": "client", "client": "c1"}).json()["id"]
    ready.drain()
    assert state(ready, request) == "needs-decision"


def test_a_failed_fit_leaves_no_upload_behind(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RefusedError("the penalty is too small: take a larger one")

    monkeypatch.setattr(type(METHOD), "learn", refuse)
    installation.caller.register_model()
    installation.drain()
    model = installation.caller.operator("GET", f"/v1/models/{MODEL}").json()
    assert (model["state"], model["failure"]) == (
        "failed",
        "the penalty is too small: take a larger one",
    )
    with Session(installation.services.engine) as session:
        assert [row.wrapped_key for row in session.exec(select(Artifact))] == [None]


# SQLite only: a test cannot read PostgreSQL's files.
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_key_kept_alive_by_a_reader_is_scrubbed_by_the_sweep(ready: Installation) -> None:
    with Session(ready.services.engine) as session:
        key = session.exec(select(Subject.wrapped_key).where(Subject.client_tag == "c1")).one()
    assert key is not None
    with ready.services.reading() as reader:
        reader.exec(select(Subject)).all()  # holds the old pages
        ready.caller.erase_records("r1")
        ready.drain()
    sweep.run(ready.services)
    path = Path(str(ready.services.engine.url.database))
    stored = b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
    assert key not in stored


def test_a_whole_client_leaves_no_block_and_no_key(ready: Installation) -> None:
    ready.caller.erase({"level": "client", "client": "c2"})
    ready.drain()
    with Session(ready.services.engine) as session:
        subject = session.exec(select(Subject).where(Subject.client_tag == "c2")).one()
        assert subject.wrapped_key is None
        assert session.get(FeatureBlock, subject.id) is None
        left = session.exec(select(Record).where(Record.subject_id == subject.id)).all()
        assert not left
        assert len(session.exec(select(Record)).all()) == ROWS - ROWS // CLIENTS


def test_a_client_may_come_back_after_erasure(ready: Installation) -> None:
    ready.caller.erase({"level": "client", "client": "c2"})
    ready.drain()
    client = Caller(ready.caller.http, ready.caller.token, keyid="client")
    client.register_key(role="client", client="c2")
    arrays = {**rows(seed=4, count=3, first=500), "clients": np.array(["c2"] * 3)}
    answer = client.signed(
        "POST",
        f"/v1/models/{MODEL}/contributions",
        pack(arrays),
        content_type="application/x-npz",
    )
    assert answer.status_code == 202, answer.text
    ready.drain()
    assert ready.caller.http.get(answer.headers["location"]).json()["state"] == "learned"
    request = ready.caller.erase({"level": "client", "client": "c2"}).json()["id"]
    ready.drain()
    assert state(ready, request) == "certified"
    ready.check()


def test_everything_can_be_erased(ready: Installation) -> None:
    for number in range(CLIENTS):
        ready.caller.erase({"level": "client", "client": f"c{number}"})
    ready.drain()
    with Session(ready.services.engine) as session:
        states = {request.state for request in session.exec(select(ErasureRequest))}
    assert states == {"certified"}
    items = ready.caller.operator("GET", f"/v1/models/{MODEL}/versions").json()["items"]
    assert items[-1]["retained_count"] == 0
    ready.check()


def test_an_erased_record_leaves_no_salt_and_no_row_on_disk(ready: Installation) -> None:
    with Session(ready.services.engine) as session:
        record = session.exec(select(Record).where(Record.record == "r1")).one()
        block = session.get_one(FeatureBlock, record.subject_id)
        key = session.get_one(Subject, record.subject_id).wrapped_key
        gone = [bytes(record.salt), bytes(block.ciphertext)[:64], key]
    ready.caller.erase_records("r1")
    ready.drain()
    with Session(ready.services.engine) as session:
        assert session.exec(select(Record).where(Record.record == "r1")).first() is None
        assert gone[0] not in {bytes(salt) for salt in session.exec(select(Record.salt))}
        assert gone[2] not in set(session.exec(select(Subject.wrapped_key)))
    if ready.services.engine.dialect.name == "sqlite":  # the file itself, including free pages
        path = Path(str(ready.services.engine.url.database))
        stored = b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
        for secret in gone:
            assert secret is not None
            assert secret not in stored


@pytest.mark.parametrize("count", [1, 7])
def test_blocks_round_trip(count: int) -> None:
    from workers.arrays import Rows

    rng = np.random.default_rng(count)
    codes = rng.integers(-32767, 32767, size=(count, 4), dtype=np.int16)
    labels = rng.integers(3, size=count, dtype=np.int64)
    block = RowBlock.fresh([f"r{i}" for i in range(count)], Rows(codes, labels), 3)
    again = decode_block(block.encode())
    assert isinstance(again, RowBlock)
    assert again.records == block.records
    assert np.array_equal(again.rows.codes, codes)
    assert np.array_equal(again.rows.labels, labels)
    assert np.array_equal(again.salts, block.salts)
    assert again.learned.tolist() == [3] * count
