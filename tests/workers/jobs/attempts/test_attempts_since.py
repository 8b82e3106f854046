"""A refuted attempt is reported as the log has it, whatever the tables say afterwards."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from sqlmodel import Session, select

from app.ledger.sequencer import Ledger
from app.reconcile.judgement import NOT_JUDGED
from app.settings import Settings
from lethe.certificates.evidence import parse_evidence
from lethe.certificates.statement import AttemptPart, read_escalation, write_escalation
from models import Artifact, RequestEvent, Verification
from tests.installation import Installation, install, shown, state
from tests.workers.jobs.attempts.ladders import HF_KCU, escalations, parameters, policy
from tests.workers.jobs.attempts.planted import plant
from tests.workers.jobs.attempts.test_decisions import decide
from tests.workers.jobs.cases.tampered import job_of
from tests.workers.jobs.cases.test_dishonest_provider import nothing_done
from tests.workers.jobs.cases.test_logged_judgement import refused, step
from tests.workers.jobs.families.network import networks
from workers.families.network.ladder import NO_USE
from workers.jobs import certify, execute, verify
from workers.updates import draft
from workers.updates.draft import Draft

Patch = pytest.MonkeyPatch
NOT_LOGGED = "the draft is not the one that the log has as executed"


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the log's content does not depend on it."""
    return sqlite_url


@pytest.fixture
def failed(ready: Installation, monkeypatch: Patch) -> Iterator[str]:
    """A request whose first attempt has just been refuted."""
    request = str(ready.caller.erase_records("r1", "r6").json()["id"])
    with monkeypatch.context() as patch:
        nothing_done(patch)
        step(ready, request, execute.run, verify.run)
    assert state(ready, request) == "escalated"
    yield request
    ready.check()


def verdict_of(ready: Installation, request: str) -> AttemptPart:
    with Session(ready.services.engine) as session:
        found = session.get_one(Verification, request)
        report = parse_evidence(ready.services.artifacts.get(session, found.evidence_id)).report
    assert report.result != "PASS"
    return AttemptPart(1, "ridge-exact", report.result, None, report.checks)


def rewritten(found: Verification, session: Session) -> None:
    check = {"number": 1, "name": "samples", "value": "3 pairs", "passed": False}
    found.result = "INCONCLUSIVE"
    found.report = {"checks": [{**check, "interval": None, "threshold": ""}]}
    session.add(found)


def invented(found: Verification, session: Session) -> None:
    found.report = {**found.report, "skipped": ["natural: FAIL (test-accuracy: lost 0.5)"]}
    session.add(found)


def deleted(found: Verification, session: Session) -> None:
    session.delete(found)


@pytest.mark.parametrize("change", [rewritten, invented, deleted])
def test_no_table_changes_what_is_told_of_an_attempt(
    ready: Installation, failed: str, change: Callable[[Verification, Session], None]
) -> None:
    verdict = verdict_of(ready, failed)
    assert verdict.result == "FAIL"
    with Session(ready.services.engine) as session:
        found = session.get_one(Verification, failed)
        evidence = found.evidence_id
        change(found, session)
        session.commit()
    step(ready, failed, execute.run, verify.run, certify.run)
    assert read_escalation(parameters(ready, failed)) == (verdict,)
    if change is deleted:  # nothing destroyed the file that only its row named
        with pytest.raises(AssertionError, match="needed by no row"):
            ready.check()
        with Session(ready.services.engine) as session:
            ready.services.artifacts.shred(session, evidence)
            session.commit()


def test_without_the_evidence_that_the_log_names_nothing_is_told(
    ready: Installation, failed: str
) -> None:
    verdict = verdict_of(ready, failed)
    with Session(ready.services.engine) as session:
        evidence = session.get_one(Verification, failed).evidence_id
        stored = session.get_one(Artifact, evidence)
        stored.kind = "state"
        session.commit()
    step(ready, failed, execute.run)
    told = shown(ready, failed)
    assert (told["state"], told["certificate"]) == ("needs-decision", None)
    assert "is not stored: restore it" in told["reason"]
    with Session(ready.services.engine) as session:
        session.get_one(Artifact, evidence).kind = "evidence"
        session.commit()
    assert decide(ready, failed, "retry") == 200
    ready.drain()
    assert read_escalation(parameters(ready, failed)) == (verdict,)


def test_an_event_that_does_not_open_is_not_told(ready: Installation, failed: str) -> None:
    query = select(RequestEvent).where(RequestEvent.event == "request.verified")
    with Session(ready.services.engine) as session:
        event = session.exec(query).one()
        said = event.payload
        event.payload = {**said, "result": "INCONCLUSIVE"}
        session.commit()
    step(ready, failed, execute.run)
    reason = "what the log says of the request cannot be read: The commitment does not open"
    assert shown(ready, failed)["reason"] == reason
    with Session(ready.services.engine) as session:
        session.exec(query).one().payload = said
        session.commit()


def planned(
    ready: Installation,
    request: str,
    change: Callable[[Draft], Draft],
    patch: Patch | None = None,
) -> None:
    """Replace a job's draft by another sealed one; with `patch`, as if it was logged."""
    with Session(ready.services.engine) as session:
        job = job_of(session, request)
        plan = change(draft.load(ready.services, session, job))
        (stored,) = draft.store(ready.services, session, [plan])
        assert job.draft_id is not None
        ready.services.artifacts.shred(session, job.draft_id)
        job.draft_id, digest = stored.id, stored.digest
        session.commit()
    if patch is not None:
        patch.setattr(draft, "logged_digest", lambda *_: digest)


def test_a_draft_that_the_log_has_not_is_not_told(ready: Installation, failed: str) -> None:
    planned(ready, failed, lambda plan: replace(plan, method="acu"))
    step(ready, failed, execute.run)
    assert shown(ready, failed)["reason"] == NOT_LOGGED


def test_a_draft_of_another_method_is_not_told(
    ready: Installation, failed: str, monkeypatch: Patch
) -> None:
    planned(ready, failed, lambda plan: replace(plan, method="acu"), monkeypatch)
    step(ready, failed, execute.run)
    assert shown(ready, failed)["reason"] == (
        "the draft names another method than the one the log records as executed"
    )


def test_an_escalation_that_the_log_has_not_is_not_signed(
    ready: Installation, failed: str, monkeypatch: Patch
) -> None:
    step(ready, failed, execute.run, verify.run)
    escalation = write_escalation([AttemptPart(1, "ridge-exact", "NONE", NOT_JUDGED, ())])
    planned(
        ready,
        failed,
        lambda plan: replace(plan, parameters={**plan.parameters, **escalation}),
        monkeypatch,
    )
    step(ready, failed, certify.run)
    refused(ready, failed, "the escalation is not the one that the log has")


def test_what_is_left_out_is_told_and_logged_of_all_that_escalate_together(
    settings: Settings, ledger: Ledger, monkeypatch: Patch
) -> None:
    waiting = {"batch_min_requests": 2, "batch_max_wait_seconds": 3600}
    with install(settings.model_copy(update=waiting)) as made:
        networks.register(made, policy=policy(HF_KCU))
        plant(monkeypatch, "INCONCLUSIVE")
        ids = [networks.submit(made, networks.some(r)) for r in ("r0", "r2")]
        made.drain()
        left_out = AttemptPart(None, "hf-kcu", "NONE", NO_USE, ())
        first, second = (read_escalation(parameters(made, one)) for one in ids)
        assert (first[0].result, first[1:]) == ("INCONCLUSIVE", (left_out,))
        assert second == (AttemptPart(1, "puf-special", "NONE", NOT_JUDGED, ()), left_out)
        line = f"hf-kcu: {NO_USE}"
        assert [[e["skipped"] for e in escalations(made, one)] for one in ids] == [[[line]]] * 2
        made.check()
