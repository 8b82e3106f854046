"""Audits through the service: started, computed pair by pair, reported, cited."""

from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from sqlmodel import Session

from app import canonical
from app.certificates.audit_check import check_report
from app.service import certificates
from models import Audit
from models.types import utcnow
from tests.installation import Installation
from tests.workers.tasks import audits
from workers.tasks import audit, audit_queue
from workers.unlearning import registry
from workers.unlearning.base import Case, Hooks, Unlearned


@pytest.fixture
def ready(installation: Installation) -> Installation:
    """An installation with a small network that trains in no time."""
    audits.register(installation)
    return installation


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
    # Nothing of the rows: not an id, and no file but the signed one.
    for word in (*(f'"r{i}"' for i in range(120)), *(f'"c{i}"' for i in range(4))):
        assert word.encode() not in report + statistics
    ready.check()


class DoNothing:
    """What a dishonest provider may sell as a method."""

    id, version, needs = "natural", "2", frozenset[str]()

    def run(self, case: Case, hooks: Hooks | None = None) -> Unlearned:
        from tests.workers.audit.small import DoNothing as Leaky

        return Leaky().run(case)


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


class Killed(BaseException):
    """A worker's end between two statements."""


def test_a_killed_worker_loses_its_pair_alone_and_others_compute_the_same(
    ready: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = audits.start(ready, method="finetune")
    ready.drain()
    wanted = audits.numbers(ready, whole)
    audit_id = audits.start(ready, method="finetune")
    for _ in range(3):
        audit.run(ready.services, audit_id)
    record = audit_queue.record

    def killed(*_: Any) -> bool:
        raise Killed

    monkeypatch.setattr(audit_queue, "record", killed)
    with pytest.raises(Killed):
        audit.run(ready.services, audit_id)
    monkeypatch.setattr(audit_queue, "record", record)
    ready.dispatcher.nudges.clear()  # with the worker's memory, and the broker's
    assert audits.numbers(ready, audit_id) == [*wanted[:3], *[(None, None, None)] * 13]
    ready.dispatcher.sweep(ready.services)  # too early: the lease of the dead still runs
    assert audits.get(ready, audit_id)["pairs_done"] == 3
    monkeypatch.setattr(audit_queue, "utcnow", lambda: utcnow() + timedelta(hours=1))
    with Session(ready.services.engine) as session:
        session.get_one(Audit, audit_id).nudged_at = utcnow() - timedelta(hours=1)
        session.commit()
    ready.dispatcher.sweep(ready.services)
    assert audits.numbers(ready, audit_id) == wanted
    assert audits.get(ready, audit_id)["state"] == "reported"
