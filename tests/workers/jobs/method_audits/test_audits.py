"""Audits through the service: started, computed pair by pair, reported, cited."""

import threading
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import ColumnElement
from sqlalchemy.exc import OperationalError
from sqlmodel import Session, col, select

from app import steps
from app.keys.issuer import signing_issuer
from app.service.context import Services
from app.service.issued import certificates
from lethe import canonical
from lethe.certificates.audits.check import check_report
from lethe.certificates.audits.counts import audit_digest
from lethe.held_out import is_held_out
from models import Model, Record
from models.database.types import clock
from tests import small_network
from tests.installation import Installation, make_token
from tests.workers.audit_pairs.small import DoNothing
from tests.workers.jobs.families.network import networks
from tests.workers.jobs.leases.test_deaths import set_ahead
from tests.workers.jobs.method_audits import audits
from workers.families.network import audited
from workers.families.network.data.rows import Held, assemble
from workers.jobs import (
    execute,
    sweep,
)
from workers.method_audits import (
    queue as audit_queue,
)
from workers.method_audits import (
    report as audit_report,
)
from workers.method_audits import (
    run as audit,
)
from workers.method_audits.queue import LeasedPair
from workers.methods.network import registry
from workers.methods.network.retrain import Retrain


@pytest.fixture
def ready(installation: Installation) -> Installation:
    """An installation with a small network that trains quickly."""
    audits.register(installation)
    return installation


@pytest.fixture
def quick(ready: Installation, monkeypatch: pytest.MonkeyPatch) -> audits.Quick:
    """The same with numbers instead of trained pairs."""
    found = audits.Quick(ready)
    monkeypatch.setattr("workers.families.network.audited.run_pair", found.run_pair)
    return found


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_audit_of_retraining_is_reported_signed_and_logged(ready: Installation) -> None:
    audit_id = audits.start(ready, method="retrain")
    shown = audits.get(ready, audit_id)
    (started,) = audits.logged(ready)
    name = {"audit": audit_digest(audit_id, audits.row(ready, audit_id).created_at)}
    config = sha256(canonical.encode(shown["config"])).hexdigest()
    named = sha256(b"retrain").hexdigest()
    assert started == ("audit.started", {**name, "config": config, "method": named})
    assert (shown["state"], shown["pairs_done"]) == ("running", 0)
    ready.drain()
    shown = audits.get(ready, audit_id)
    assert (shown["state"], shown["pairs_done"]) == ("reported", 16)
    report, statistics = (audits.file(ready, audit_id, p) for p in ("report", "statistics"))
    issuer, keyid = certificates.issuer_key(ready.services)
    checked = check_report(report, issuer, statistics)
    said = checked.statement.predicate
    assert checked.keyid == keyid
    assert {"audit": checked.audit} == name
    end = {**name, "config": checked.configuration, "report": checked.digest}
    assert audits.logged(ready)[1:] == [
        ("audit.reported", {**end, "code": said.method.code_digest})
    ]
    assert checked.configuration == shown["config_digest"] == config
    assert said.result == shown["result"] == "NOTHING-FOUND"
    assert (said.after.epsilon, said.versions, said.pairs) == ("0", (1, 1), 16)
    assert float(said.before.epsilon) > 0
    assert audits.numbers(ready, audit_id)[5] == audits.by_hand(5, Retrain())
    # No row data: not an id, and no file except the signed one.
    for word in (*(f'"r{i}"' for i in range(120)), *(f'"c{i}"' for i in range(4))):
        assert word.encode() not in report + statistics
    ready.check()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_method_that_does_nothing_is_reported_as_a_leak(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.METHODS, "natural", DoNothing)
    audit_id = audits.start(ready, method="natural")
    ready.drain()
    shown = audits.get(ready, audit_id)
    assert shown["result"] == "LEAK"
    assert "at confidence 0.95; 8 trials can show 0.53472 at most" in shown["found"]


def test_a_killed_worker_loses_its_pair_alone_and_others_compute_the_same(
    quick: audits.Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = quick.installation
    whole = audits.start(ready, method="finetune")
    ready.drain()
    wanted = audits.numbers(ready, whole)
    audit_id = audits.start(ready, method="finetune")
    for _ in range(3):
        audit.run(ready.services, audit_id)
    with monkeypatch.context() as patched:
        patched.setattr(audit_queue, "record", killed)
        with pytest.raises(Killed):
            audit.run(ready.services, audit_id)
    ready.dispatcher.nudges.clear()  # as when worker and broker lose their memory
    assert audits.numbers(ready, audit_id) == [*wanted[:3], *[(None, None, None)] * 13]
    ready.dispatcher.sweep(ready.services)  # the dead worker's lease has not expired
    assert audits.get(ready, audit_id)["pairs_done"] == 3
    audits.age(ready, audit_id, timedelta(hours=1))
    ready.dispatcher.sweep(ready.services)
    assert audits.numbers(ready, audit_id) == wanted
    assert audits.get(ready, audit_id)["state"] == "reported"


class Killed(BaseException):
    """A worker's death between two statements."""


def killed(*_: Any) -> bool:
    raise Killed


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_reports_differ_in_nothing_but_who_and_when(quick: audits.Quick) -> None:
    """Equal configurations, whatever happened in between: equal numbers, counts and bounds."""
    ready = quick.installation
    ids = [audits.start(ready, method="natural")]
    ready.drain()
    ids.append(audits.start(ready, method="natural"))
    audit.run(ready.services, ids[1])
    ready.drain()
    first, second = (audits.said(ready, one) for one in ids)
    same = replace(second, audit_id=first.audit_id, started_at=first.started_at)
    assert replace(same, reported_at=first.reported_at) == first
    files = [audits.file(ready, one, "statistics") for one in ids]
    assert files[0] == files[1]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_report_has_the_databases_time(
    quick: audits.Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its start has: a slow worker reported an audit before it began."""
    ready = quick.installation
    audit_id = audits.start(ready, method="natural")
    set_ahead(monkeypatch, timedelta(hours=-1))
    ready.drain()
    said = audits.said(ready, audit_id)
    assert said.reported_at >= said.started_at


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_worker_that_dies_before_the_report_leaves_it_to_the_next(
    quick: audits.Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = quick.installation
    audit_id = audits.start(ready, method="retrain")
    with monkeypatch.context() as patched:
        patched.setattr(audit_report, "issue_if_complete", lambda *_: False)
        ready.drain()
    assert audits.get(ready, audit_id)["pairs_done"] == 16
    assert audits.get(ready, audit_id)["state"] == "running"
    answer = ready.caller.operator("GET", f"/v1/audits/{audit_id}/report")
    assert (answer.status_code, answer.json()["state"]) == (404, "running")
    audits.age(ready, audit_id, timedelta(hours=1))
    ready.dispatcher.sweep(ready.services)
    assert audits.get(ready, audit_id)["state"] == "reported"
    assert not audit_report.issue_if_complete(ready.services, audit_id)
    assert [event for event, _ in audits.logged(ready)] == ["audit.started", "audit.reported"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_records_may_be_erased_while_an_audit_runs_and_are_used_no_more(
    quick: audits.Quick,
) -> None:
    ready = quick.installation
    audit_id = audits.start(ready, method="retrain", parallel=1)
    audit.run(ready.services, audit_id)
    before = audits.numbers(ready, audit_id)
    gone = set(records_of(ready)) - targets_of(ready)
    networks.erase(ready, networks.some(*sorted(gone)), method="retrain")  # and all the rest
    said = audits.said(ready, audit_id)
    assert said.versions == (1, 2)
    assert audits.numbers(ready, audit_id)[0] == before[0]
    assert gone <= quick.seen[0]
    assert not gone & quick.seen[-1]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_rows_may_be_learned_while_an_audit_runs_and_are_used_from_then_on(
    quick: audits.Quick,
) -> None:
    ready = quick.installation
    audit_id = audits.start(ready, method="retrain", parallel=1)
    audit.run(ready.services, audit_id)
    audits.contribute(ready, "more")
    ready.drain()
    assert audits.said(ready, audit_id).versions == (1, 2)
    assert "more0" not in quick.seen[0]
    assert "more0" in quick.seen[-1]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_version_that_is_published_while_rows_are_read_does_not_end_the_audit(
    quick: audits.Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are those of the version before it, from a snapshot of the database."""
    ready = quick.installation
    others = sorted(set(records_of(ready)) - targets_of(ready))
    audit_id = audits.start(ready, method="retrain", parallel=1)
    ready.dispatcher.nudges.clear()

    def meanwhile(services: Services, session: Session, model_id: int) -> list[Held]:
        monkeypatch.setattr(audited, "assemble", assemble)
        assert session.exec(select(Model.current_version)).one() == 1
        networks.erase(ready, networks.some(others[0]), method="retrain")
        return assemble(services, session, model_id)

    monkeypatch.setattr(audited, "assemble", meanwhile)
    audit.run(ready.services, audit_id)
    assert others[0] in quick.seen[0]
    ready.drain()
    assert audits.said(ready, audit_id).versions == (1, 2)


def records_of(ready: Installation) -> list[str]:
    """Return the twenty oldest records that are trained on, in the order of arrival."""
    with Session(ready.services.engine) as session:
        records = session.exec(select(Record.record).order_by(col(Record.id))).all()
    return [r for r in records if not is_held_out(audits.SEED, 0.25, r)][:20]


def targets_of(ready: Installation) -> set[str]:
    """Return the oldest records that may have been among the first three by their hash."""
    known = records_of(ready)
    ranks = [sha256(f"audit-target|5|{record}".encode()).digest() for record in known]
    lower = [sum(other < rank for other in ranks[:at]) for at, rank in enumerate(ranks)]
    return {record for record, before in zip(known, lower, strict=True) if before < 3}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_numbers_go_with_a_record_that_they_may_be_of_and_the_report_stays(
    quick: audits.Quick,
) -> None:
    ready = quick.installation
    done = audits.start(ready, method="retrain")
    ready.drain()
    report = audits.file(ready, done, "report")
    path = f"/v1/audits/{done}/statistics"
    assert ready.caller.operator("GET", path).headers.get_list("cache-control") == ["no-store"]
    running = audits.start(ready, method="retrain", parallel=1)
    audit.run(ready.services, running)
    taken = audit_queue.take(ready.services, running)
    assert taken is not None
    others = [r for r in records_of(ready) if r not in targets_of(ready)]
    networks.erase(ready, networks.some(others[0]), method="retrain")
    assert audits.numbers(ready, done)[0] != (None, None, None)
    ready.dispatcher.nudges.clear()
    target = networks.submit(
        ready, networks.some(sorted(targets_of(ready))[0]), method="retrain"
    )
    execute.run(
        ready.services, next(j.id for j in networks.jobs(ready) if j.request_id == target)
    )
    assert set(audits.numbers(ready, done)) == set(audits.numbers(ready, running))
    assert set(audits.numbers(ready, done)) == {(None, None, None)}
    # A pair computed from the earlier rows comes too late.
    assert not audit_queue.record(ready.services, taken, {"before": "0x1p0"})
    answer = ready.caller.operator("GET", path)
    assert (answer.status_code, answer.json()["title"]) == (410, "The numbers are destroyed")
    assert audits.file(ready, done, "report") == report
    ready.dispatcher.nudge(running, "audit")
    ready.drain()
    assert audits.get(ready, running)["state"] == "reported"
    assert (None, None, None) not in audits.numbers(ready, running)


def erased(ready: Installation, record: str) -> None:
    """Execute the erasure of a record, without anything that follows."""
    request = networks.submit(ready, networks.some(record), method="retrain")
    execute.run(
        ready.services, next(j.id for j in networks.jobs(ready) if j.request_id == request)
    )


def test_an_audit_that_is_started_while_a_record_is_erased_keeps_no_numbers_of_it(
    quick: audits.Quick,
) -> None:
    ready = quick.installation
    target = sorted(targets_of(ready))[0]
    started: list[str] = []

    def start(step: str) -> None:
        if step == "execute.computed" and not started:
            started.append(audits.start(ready, method="retrain", parallel=1))
            audit.run(ready.services, started[0])

    steps.install(start)
    try:
        erased(ready, target)
    finally:
        steps.install(None)
    (audit_id,) = started
    assert target in quick.seen[0]
    assert audits.numbers(ready, audit_id)[0] == (None, None, None)
    ready.drain()
    assert not any(target in seen for seen in quick.seen[1:])
    assert audits.said(ready, audit_id).versions == (2, 2)


def test_no_report_is_signed_of_numbers_that_go_while_they_are_judged(
    quick: audits.Quick, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = quick.installation
    target, honest = sorted(targets_of(ready))[0], signing_issuer
    audit_id = audits.start(ready, method="retrain", parallel=1)

    def erased_meanwhile(*given: Any) -> Any:
        monkeypatch.setattr(audit_report, "signing_issuer", honest)
        erased(ready, target)
        return honest(*given)

    monkeypatch.setattr(audit_report, "signing_issuer", erased_meanwhile)
    ready.drain()
    assert audits.get(ready, audit_id)["pairs_done"] == 16
    assert audits.said(ready, audit_id).versions == (2, 2)
    assert not any(target in seen for seen in quick.seen[16:])


def test_an_audit_that_is_due_is_started_anew_with_another_seed(quick: audits.Quick) -> None:
    ready = quick.installation
    audit_id = audits.start(ready, method="retrain", every_days=30)
    ready.drain()
    ready.dispatcher.sweep(ready.services)
    assert len(audits.all_of(ready)) == 1
    audits.age(ready, audit_id, timedelta(days=29))
    ready.dispatcher.sweep(ready.services)
    assert len(audits.all_of(ready)) == 1
    audits.age(ready, audit_id, timedelta(days=1))
    assert sweep.run(ready.services) == 1
    assert sweep.run(ready.services) == 0
    # Not by their starts: those have whole seconds, and both may have the same.
    second, first = sorted(audits.all_of(ready), key=lambda one: one["id"] == audit_id)
    assert (first["every_days"], second["every_days"]) == (0, 30)
    assert first["config"].pop("seed") != second["config"].pop("seed")
    assert first["config"] == second["config"]
    event, digests = audits.logged(ready)[-1]
    assert (event, digests["config"]) == ("audit.started", second["config_digest"])
    answer = ready.caller.operator("POST", f"/v1/audits/{second['id']}/stop")
    assert (answer.json()["state"], answer.json()["every_days"]) == ("stopped", 0)
    ready.drain()
    assert audits.get(ready, second["id"])["pairs_done"] == 0
    audits.age(ready, second["id"], timedelta(days=60))
    assert sweep.run(ready.services) == 0


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_cannot_be_audited_ends_with_the_reason(ready: Installation) -> None:
    audit_id = audits.start(ready, method="retrain", rows=50)  # of 60 records, some held out
    ready.drain()
    shown = audits.get(ready, audit_id)
    assert shown["state"] == "failed"
    assert "training rows, and a pair needs 50" in shown["failure"]
    digests = dict(audits.logged(ready)[0][1])
    del digests["method"]
    assert audits.logged(ready)[-1] == ("audit.failed", digests)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_error_is_tried_again_and_ends_the_audit_without_its_text(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("jane.doe@example.org")

    def unreachable(*_: Any) -> None:
        raise OSError("jane.doe@example.org")

    audit_id = audits.start(ready, method="retrain")
    for tries, error in enumerate([unreachable, *[broken] * 5]):
        assert audits.get(ready, audit_id)["state"] == "running", tries
        monkeypatch.setattr(audited, "run_pair", error)
        audit.run(ready.services, audit_id)
        audits.age(ready, audit_id, timedelta(hours=1))
    shown = audits.get(ready, audit_id)
    assert (shown["state"], shown["failure"]) == (
        "failed",
        "RuntimeError: see the service's log",
    )
    assert "jane.doe" not in caplog.text


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_other_code_does_not_finish_an_audit(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit_id = audits.start(ready, method="retrain")
    audit.run(ready.services, audit_id)
    monkeypatch.setattr(audit, "code_digest", lambda *_: "0" * 64)
    audit.run(ready.services, audit_id)
    assert "code changed" in audits.get(ready, audit_id)["failure"]


def test_a_pair_is_taken_once_and_only_so_many_are_at_work(ready: Installation) -> None:
    audit_id = audits.start(ready, method="retrain", parallel=2)
    first, second = (audit_queue.take(ready.services, audit_id) for _ in range(2))
    assert first is not None
    assert second is not None
    assert (first.pair, second.pair) == (0, 1)
    assert audit_queue.take(ready.services, audit_id) is None
    audits.age(ready, audit_id, timedelta(hours=1))  # both are presumed dead
    again = audit_queue.take(ready.services, audit_id)
    assert again is not None
    assert (again.pair, again.token) == (0, first.token + 1)
    # The returning worker does not overwrite the other's result.
    values = {"before": "0x1.0p+0", "after": "0x1.0p+0", "retrained": "0x1.0p+0"}
    assert not audit_queue.record(ready.services, first, values)
    assert audit_queue.record(ready.services, again, values)
    assert not audit_queue.record(ready.services, again, values)
    following = audit_queue.take(ready.services, audit_id)
    assert following is not None
    assert following.pair == 1


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_two_workers_at_once_take_no_more_pairs_than_may_be_at_work(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has one writer at a time, so there nobody counts between another's two reads."""
    audit_id, honest = audits.start(ready, method="retrain", parallel=1), audit_queue.free
    taken: list[LeasedPair | None] = []
    other = threading.Thread(
        target=lambda: taken.append(audit_queue.take(ready.services, audit_id))
    )

    def free(now: datetime) -> ColumnElement[bool]:
        monkeypatch.setattr(audit_queue, "free", honest)
        other.start()
        other.join(1)  # it waits for the first, or takes a pair now
        return honest(now)

    monkeypatch.setattr(audit_queue, "free", free)
    taken.append(audit_queue.take(ready.services, audit_id))
    other.join()
    assert len([one for one in taken if one is not None]) == 1


@pytest.mark.parametrize("missed", [0, 1])  # renewals for which the database was away
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_worker_keeps_its_pair_as_long_as_it_works(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, missed: int
) -> None:
    audit_id = audits.start(ready, method="retrain", parallel=1)
    taken = audit_queue.take(ready.services, audit_id)
    assert taken is not None
    renewals: list[float | None] = []

    class Once(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            renewals.append(timeout)
            return len(renewals) > 1 + missed

    def now(connection: Any) -> datetime:
        if len(renewals) <= missed:
            raise OperationalError("SELECT", None, Exception("away"))
        return clock(connection)

    patched = SimpleNamespace(Event=Once, Thread=threading.Thread)
    monkeypatch.setattr(audit_queue, "threading", patched)
    monkeypatch.setattr(audit_queue, "clock", now)
    audits.age(ready, audit_id, timedelta(hours=1))
    with audit_queue.renewed(ready.services, taken):
        pass
    assert renewals == [ready.services.settings.lease_seconds / 3] * (2 + missed)
    assert audit_queue.take(ready.services, audit_id) is None


BAD: list[tuple[dict[str, Any], int]] = [
    ({"model": "unknown"}, 404),
    ({"model": "small"}, 422),  # a ridge head
    ({"method": "sisa"}, 422),
    ({"method": "magic"}, 422),
    ({"pairs": 14}, 422),
    ({"pairs": 17}, 422),
    ({"pairs": 5000}, 422),
    ({"rows": 1}, 422),
    ({"rows": 58}, 422),  # with three targets more than there are
    ({"targets": 0}, 422),
    ({"target": "poisoned"}, 422),
    ({"seed": -1}, 422),
    ({"confidence": "0.99999"}, 422),
    ({"confidence": "1"}, 422),
    ({"confidence": "0.950"}, 422),
    ({"delta": "0.6"}, 422),
    ({"every_days": -1}, 422),
    ({"parallel": 65}, 422),
    ({"record": "alice"}, 422),
]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_can_never_work_is_refused_before_anything_is_logged(ready: Installation) -> None:
    assert ready.caller.register_model().status_code == 201
    for changes, status in BAD:
        wanted = {"model": small_network.MODEL, **audits.ASKED, **changes}
        answer = ready.caller.operator("POST", "/v1/audits", json=wanted)
        assert answer.status_code == status, (changes, answer.text)
        assert "alice" not in answer.text
    assert audits.logged(ready) == []
    assert audits.all_of(ready) == []
    audit_id = audits.start(ready, method="retrain")
    again = {"model": small_network.MODEL, **audits.ASKED, "method": "retrain"}
    assert ready.caller.operator("POST", "/v1/audits", json=again).status_code == 409
    audits.start(ready, method="natural")  # audits of different methods may run side by side
    assert ready.caller.operator("GET", "/v1/audits/none").status_code == 404
    pages = ready.caller.operator("GET", "/v1/audits?limit=1").json()
    rest = ready.caller.operator("GET", f"/v1/audits?after={pages['next']}").json()
    listed = [one["id"] for one in (*pages["items"], *rest["items"])]
    assert len(listed) == 2
    assert audit_id in listed


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_auditors_read_and_nobody_else_does(ready: Installation) -> None:
    audit_id = audits.start(ready, method="retrain")
    auditor = replace(ready.caller, token=make_token(ready.services, "auditor"))
    stranger = replace(ready.caller, token="none")
    for path in ("", f"/{audit_id}"):
        assert auditor.operator("GET", f"/v1/audits{path}").status_code == 200
        assert stranger.operator("GET", f"/v1/audits{path}").status_code == 401
    wanted = {"model": small_network.MODEL, **audits.ASKED}
    assert auditor.operator("POST", "/v1/audits", json=wanted).status_code == 403
    assert auditor.operator("POST", f"/v1/audits/{audit_id}/stop").status_code == 403


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_model_out_of_service_is_not_audited(ready: Installation) -> None:
    audit_id = audits.start(ready, method="retrain", every_days=1)
    with Session(ready.services.engine) as session:
        session.exec(select(Model)).one().state = "quarantined"
        session.commit()
    wanted = {"model": small_network.MODEL, **audits.ASKED}
    assert ready.caller.operator("POST", "/v1/audits", json=wanted).status_code == 409
    ready.drain()
    assert "out of service" in audits.get(ready, audit_id)["failure"]
    audits.age(ready, audit_id, timedelta(days=2))
    assert sweep.run(ready.services) == 0  # until the model is back
    with Session(ready.services.engine) as session:
        session.exec(select(Model)).one().state = "ready"
        session.commit()
    assert sweep.run(ready.services) == 1
