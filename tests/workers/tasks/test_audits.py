"""Audits through the service: started, computed pair by pair, reported, cited."""

import threading
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from sqlmodel import Session, col, select

from app import canonical
from app.certificates.audit_check import check_report
from app.cli.certificate import show
from app.service import certificates
from models import Artifact, Audit, Model, Record
from tests import small_network
from tests.installation import Installation, make_token
from tests.workers.audit.small import DoNothing
from tests.workers.tasks import audits, ladders, networks
from tests.workers.tasks.planted import plant
from workers.audit.pair import Pair
from workers.fedavg.held_out import is_held_out
from workers.tasks import audit, audit_citation, audit_queue, audit_report, execute, sweep
from workers.unlearning import registry
from workers.unlearning.retrain import Retrain


@pytest.fixture
def ready(installation: Installation) -> Installation:
    """An installation with a small network that trains in no time."""
    audits.register(installation)
    return installation


class Quick:
    """Pairs of a retraining by (seed, pair) alone; `seen` are the records that each was given."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.seen: list[set[str]] = []

    def run_pair(self, *given: Any) -> Pair:
        rows, plan, number = given[3], given[4], given[5]
        self.seen.append({record for own in rows.values() for record in own.records})
        drawn = sha256(f"{plan.seed}|{number}".encode()).digest()
        return Pair(20 + drawn[0] / 256, drawn[1] / 256, drawn[1] / 256, False)


@pytest.fixture
def quick(ready: Installation, monkeypatch: pytest.MonkeyPatch) -> Quick:
    """The same with pairs that are numbers and no models."""
    found = Quick(ready)
    monkeypatch.setattr(audit, "run_pair", found.run_pair)
    return found


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_audit_of_retraining_is_reported_signed_and_logged(ready: Installation) -> None:
    audit_id = audits.start(ready, method="retrain")
    shown = audits.get(ready, audit_id)
    (started,) = audits.logged(ready)
    config = sha256(canonical.encode(shown["config"])).hexdigest()
    assert started == ("audit.started", {"config": config})  # and nothing has run yet
    assert (shown["state"], shown["pairs_done"]) == ("running", 0)
    ready.drain()
    shown = audits.get(ready, audit_id)
    assert (shown["state"], shown["pairs_done"]) == ("reported", 16)
    report, statistics = (audits.file(ready, audit_id, p) for p in ("report", "statistics"))
    issuer, keyid = certificates.issuer_key(ready.services)
    checked = check_report(report, issuer, statistics)
    said = checked.statement.predicate
    assert checked.keyid == keyid
    assert audits.logged(ready)[1:] == [
        ("audit.reported", {"config": checked.configuration, "report": checked.digest})
    ]
    assert checked.configuration == shown["config_digest"] == config
    assert said.result == shown["result"] == "NOTHING-FOUND"
    assert (said.after.epsilon, said.versions, said.pairs) == ("0", (1, 1), 16)
    assert float(said.before.epsilon) > 0
    assert audits.numbers(ready, audit_id)[5] == audits.by_hand(5, Retrain())
    # Nothing of the rows: not an id, and no file but the signed one.
    for word in (*(f'"r{i}"' for i in range(120)), *(f'"c{i}"' for i in range(4))):
        assert word.encode() not in report + statistics
    ready.check()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_method_that_does_nothing_is_reported_as_a_leak(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._METHODS, "natural", DoNothing)
    audit_id = audits.start(ready, method="natural")
    ready.drain()
    shown = audits.get(ready, audit_id)
    assert shown["result"] == "LEAK"
    assert "at confidence 0.95; 8 trials can show 0.53472 at most" in shown["found"]


def test_a_killed_worker_loses_its_pair_alone_and_others_compute_the_same(
    quick: Quick, monkeypatch: pytest.MonkeyPatch
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
    ready.dispatcher.nudges.clear()  # with the worker's memory, and the broker's
    assert audits.numbers(ready, audit_id) == [*wanted[:3], *[(None, None, None)] * 13]
    ready.dispatcher.sweep(ready.services)  # the lease of the dead still runs
    assert audits.get(ready, audit_id)["pairs_done"] == 3
    audits.age(ready, audit_id, timedelta(hours=1))
    ready.dispatcher.sweep(ready.services)
    assert audits.numbers(ready, audit_id) == wanted
    assert audits.get(ready, audit_id)["state"] == "reported"


class Killed(BaseException):
    """A worker's end between two statements."""


def killed(*_: Any) -> bool:
    raise Killed


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_reports_differ_in_nothing_but_who_and_when(quick: Quick) -> None:
    """Equal configurations, whatever was between: equal numbers, counts and bounds."""
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


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_worker_that_dies_before_the_report_leaves_it_to_the_next(
    quick: Quick, monkeypatch: pytest.MonkeyPatch
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
def test_records_may_be_erased_while_an_audit_runs_and_are_used_no_more(quick: Quick) -> None:
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


def records_of(ready: Installation) -> list[str]:
    """Return the twenty oldest records that are trained on, in the order of their arrival."""
    with Session(ready.services.engine) as session:
        records = session.exec(select(Record.record).order_by(col(Record.id))).all()
    return [r for r in records if not is_held_out(audits.SEED, 0.25, r)][:20]


def targets_of(ready: Installation) -> set[str]:
    """Return the oldest records that can have been among the three first by their hash."""
    known = records_of(ready)
    ranks = [sha256(f"audit-target|5|{record}".encode()).digest() for record in known]
    lower = [sum(other < rank for other in ranks[:at]) for at, rank in enumerate(ranks)]
    return {record for record, before in zip(known, lower, strict=True) if before < 3}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_numbers_go_with_a_record_that_they_may_be_of_and_the_report_stays(
    quick: Quick,
) -> None:
    ready = quick.installation
    done = audits.start(ready, method="retrain")
    ready.drain()
    report = audits.file(ready, done, "report")
    path = f"/v1/audits/{done}/statistics"
    known = ready.caller.operator("GET", path).headers["etag"]
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
    # A pair that was computed of the rows before comes too late.
    assert not audit_queue.record(ready.services, taken, {"before": "0x1p0"})
    answer = ready.caller.operator("GET", path, headers={"if-none-match": known})
    assert (answer.status_code, answer.json()["title"]) == (410, "The numbers are destroyed")
    assert audits.file(ready, done, "report") == report
    ready.dispatcher.nudge(running, "audit")
    ready.drain()
    assert audits.get(ready, running)["state"] == "reported"
    assert (None, None, None) not in audits.numbers(ready, running)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_certificate_cites_the_newest_report_of_its_own_method_and_code(
    quick: Quick, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ready = quick.installation
    file = tmp_path / "certificate"

    def cited(record: str) -> dict[str, str]:
        request_id = networks.erase(ready, networks.some(record), method="retrain")
        file.write_bytes(certificates.bundle(ready.services, request_id))
        parameters = networks.statement(ready, request_id).predicate.method.parameters
        return {name: value for name, value in parameters.items() if name[:5] == "audit"}

    other = audits.start(ready, method="natural")
    ready.drain()
    assert cited("r1") == {}
    for _ in range(2):
        audit_id = audits.start(ready, method="retrain")
        ready.drain()
    shown = audits.get(ready, audit_id)
    assert cited("r2") == {
        "audit": shown["report_digest"],
        "audit.day": shown["reported_at"][:10],
        "audit.found": shown["found"],
    }
    assert f"audit.found {shown['found']}" in CliRunner().invoke(show, [str(file)]).output
    assert shown["report_digest"] == sha256(audits.file(ready, audit_id, "report")).hexdigest()
    assert audits.row(ready, other).report_digest != shown["report_digest"]
    with ready.services.reading() as session:
        model = session.exec(select(Model)).one()
        named = ready.services, session, model, "retrain"
        assert audit_citation.citation(*named, "of another version") == {}
    monkeypatch.setattr(audit_citation, "code_digest", lambda *_: "0" * 64)
    assert cited("r3") == {}


def forged(ready: Installation, session: Session, row: Audit, other: Audit) -> None:
    """Store a report like the one that is logged, with another finding."""
    file = canonical.decode(ready.services.artifacts.get(session, row.report_id or ""))
    file["signatures"] = []
    row.report_id = ready.services.artifacts.put(
        session, "audit-report", canonical.encode(file)
    ).id
    row.report_digest = session.get_one(Artifact, row.report_id).digest


def of_another(ready: Installation, session: Session, row: Audit, other: Audit) -> None:
    row.report_id, row.report_digest = other.report_id, other.report_digest


def shredded(ready: Installation, session: Session, row: Audit, other: Audit) -> None:
    ready.services.artifacts.shred(session, row.report_id or "")


def told_otherwise(ready: Installation, session: Session, row: Audit, other: Audit) -> None:
    row.found, row.report_digest, row.result = "NOTHING-FOUND: all is well", "0" * 64, "LEAK"
    assert row.reported_at is not None
    row.reported_at += timedelta(days=400)


FORGED = {
    forged: "the log has no such report of an audit of this model",
    of_another: "the report of an audit is of another method or code",
    shredded: "the report of an audit is not stored",
    told_otherwise: None,
}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_is_cited_is_what_the_logged_report_says_whatever_the_table_says(
    quick: Quick,
) -> None:
    ready = quick.installation
    ids = [audits.start(ready, method=method) for method in ("retrain", "natural")]
    ready.drain()
    shown = audits.get(ready, ids[0])
    honest = {
        "audit": shown["report_digest"],
        "audit.day": shown["reported_at"][:10],
        "audit.found": shown["found"],
    }
    for change, why in FORGED.items():
        with Session(ready.services.engine) as session:
            row, other = (session.get_one(Audit, one) for one in ids)
            change(ready, session, row, other)
            session.flush()
            model = session.exec(select(Model)).one()
            cited = audit_citation.citation(
                ready.services, session, model, "retrain", Retrain().version
            )
            session.rollback()
        assert cited == (honest if why is None else {"audit.missing": why})


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("differs", [False, True])
def test_a_rung_with_settings_of_its_own_cites_no_audit_of_others(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, differs: bool
) -> None:
    """Audits run a method as it is registered, and so does a rung without settings."""
    rung = ladders.STRONGER if differs else ladders.HF_KCU
    networks.register(installation, policy=ladders.policy(rung))
    monkeypatch.setattr(audit, "run_pair", Quick(installation).run_pair)
    audits.start(installation, method=rung["method"])
    installation.drain()
    plant(monkeypatch, "yeom:auc")
    request_id = networks.erase(installation, networks.some("r0", "r1"))
    told = networks.statement(installation, request_id).predicate.method
    assert (told.id, "rung" in told.parameters) == (rung["method"], True)
    assert ("audit" in told.parameters) == (not differs)


def test_an_audit_that_is_due_is_started_anew_with_another_seed(quick: Quick) -> None:
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
    first, second = sorted(audits.all_of(ready), key=lambda one: one["started_at"])
    assert (first["every_days"], second["every_days"]) == (0, 30)
    assert first["config"].pop("seed") != second["config"].pop("seed")
    assert first["config"] == second["config"]
    assert audits.logged(ready)[-1] == ("audit.started", {"config": second["config_digest"]})
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
    assert "training rows, fewer than 50" in shown["failure"]
    assert audits.logged(ready)[-1] == ("audit.failed", {"config": shown["config_digest"]})


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_error_is_tried_again_and_ends_the_audit_without_its_text(
    ready: Installation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("jane.doe@example.org")

    def unreachable(*_: Any) -> None:
        raise OSError("jane.doe@example.org")

    audit_id = audits.start(ready, method="retrain")
    for attempt, error in enumerate([unreachable, *[broken] * 5]):
        assert audits.get(ready, audit_id)["state"] == "running", attempt
        monkeypatch.setattr(audit, "_computed", error)
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
    audits.age(ready, audit_id, timedelta(hours=1))  # both are thought dead
    again = audit_queue.take(ready.services, audit_id)
    assert again is not None
    assert (again.pair, again.token) == (0, first.token + 1)
    # The one that comes back records nothing over the other.
    values = {"before": "0x1.0p+0", "after": "0x1.0p+0", "retrained": "0x1.0p+0"}
    assert not audit_queue.record(ready.services, first, values)
    assert audit_queue.record(ready.services, again, values)
    assert not audit_queue.record(ready.services, again, values)
    following = audit_queue.take(ready.services, audit_id)
    assert following is not None
    assert following.pair == 1


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_worker_keeps_its_pair_as_long_as_it_works(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit_id = audits.start(ready, method="retrain", parallel=1)
    taken = audit_queue.take(ready.services, audit_id)
    assert taken is not None
    renewals: list[float | None] = []

    class Once(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            renewals.append(timeout)
            return len(renewals) > 1

    patched = SimpleNamespace(Event=Once, Thread=threading.Thread)
    monkeypatch.setattr(audit_queue, "threading", patched)
    audits.age(ready, audit_id, timedelta(hours=1))
    with audit_queue.renewed(ready.services, taken):
        pass
    assert renewals == [ready.services.settings.lease_seconds / 3] * 2
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
    audits.start(ready, method="natural")  # of another method they may run side by side
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
    assert sweep.run(ready.services) == 0  # until it is back
    with Session(ready.services.engine) as session:
        session.exec(select(Model)).one().state = "ready"
        session.commit()
    assert sweep.run(ready.services) == 1
